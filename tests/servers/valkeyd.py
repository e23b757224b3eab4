"""A Valkey of our own, which is a Redis to whoever asks: made, run, killed and started again.

It writes what it acknowledges into its append-only file, so that a SIGKILL of the server takes nothing of that.
"""

from __future__ import annotations

import os
import secrets
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import guard, start, unprivileged
from tests.servers.freezing import child_of, frozen
from tests.servers.guard import Command
from tests.servers.model import Found, Place
from tests.servers.ports import LOOPBACK, listens
from tests.servers.run import current

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 1024 * 1024
"""The longest value that it takes: as little as it can be told."""
SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
    "proto-max-bulk-len": str(LARGEST),
    "enable-debug-command": "yes",
    "repl-diskless-sync-delay": "0",
}


class Valkey:
    """One server and its data, under a keeper in `place`. *settings* are said beside those above, or instead of them."""

    def __init__(self, place: Place, program: Path, **settings: str) -> None:
        self._place, self._program = place, program
        self._settings = SETTINGS | {name.replace("_", "-"): value for name, value in settings.items()}
        self.home = unprivileged.private(place.directory / "home")
        self._port = 0

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """Without a stream in it."""
        return f"redis://{LOOPBACK}:{self._port}"

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

    @contextmanager
    def silent(self) -> Iterator[None]:
        """It is stopped for a while: connections stay, and nothing is answered."""
        with frozen(child_of(self._place.directory)):
            yield

    def _command(self, port: int) -> Command:
        argv: list[str | Path] = [self._program, "--port", str(port), "--bind", LOOPBACK, "--dir", self.home]
        for name, value in self._settings.items():
            argv += [f"--{name}", value]
        env = unprivileged.environment(HOME=os.fspath(self.home))
        return Command(argv, self.home, env, signal.SIGKILL)  # a server worth testing with survives it

    def _ready(self, port: int) -> str | None:
        """Its version once it has read its data; another that took the port has other data."""
        import redis

        if not listens(port):
            return None
        with suppress(redis.RedisError), redis.Redis(LOOPBACK, port, protocol=2, socket_timeout=2) as client:
            if client.config_get("dir")["dir"] == os.fspath(self.home):
                facts = client.info("server")
                return str(facts.get("valkey_version") or facts["redis_version"])
        return None


@contextmanager
def valkey_of_my_own(program: Path, **settings: str) -> Iterator[Valkey]:
    """A server for one test, which may kill it and start it again. It ends with the test, or with the run."""
    run = current()
    key = f"redis-own-{os.getpid()}-{secrets.token_hex(4)}"
    directory = run.directory / key
    directory.mkdir()
    directory.chmod(0o711)
    server = Valkey(Place(directory, run.owner, start), program, **settings)
    try:
        server.start()
        yield server
    finally:
        run.clean(key)
