"""A RabbitMQ of our own: one node, made, run, killed and started again with the data it had.

Erlang's port mapper would outlive every node, so each node has one of its own that ends with it: the little script below is
the parent of both.
"""

from __future__ import annotations

import os
import secrets
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import guard, start, unprivileged
from tests.servers.freezing import frozen
from tests.servers.guard import Command
from tests.servers.model import Found, NotHere, Place
from tests.servers.ports import LOOPBACK, free_port
from tests.servers.run import current

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "postroom"
PASSWORD = "the-right-password"
LARGEST = 1_048_576
"""The largest message that it takes; by itself it would take a hundred times as much."""

SETTINGS = {
    "default_user": USER,
    "default_pass": PASSWORD,
    "max_message_size": str(LARGEST),
    "disk_free_limit.absolute": "1MB",
    "vm_memory_high_watermark.absolute": "1GB",
    "log.console": "true",
    "log.console.level": "warning",
    "log.file": "false",
    "management.tcp.ip": LOOPBACK,
}
PATIENCE = 150
"""How many seconds it may take to answer: Erlang takes five of a processor to start, on a machine that does much else."""
ERLANG = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none +P 65536 +Q 4096"
"""Two schedulers, and none of them spins: other tests want the processors."""
SERVE = """#!/bin/sh
"$BINDIR/epmd" -port "$ERL_EPMD_PORT" -address 127.0.0.1 & mapper=$!
"$SERVER" & server=$!
trap 'kill -9 $server $mapper; wait; exit 0' TERM
wait $server
kill -9 $mapper
"""
"""Whoever ends it returns when both are gone."""
ERL = """#!/bin/sh
exec "$BINDIR/erlexec" "$@"
"""
"""Erlang's own is made for the place it is installed in, and for no other."""


class Rabbit:
    """One node and its data, under a keeper in `place`; its programs are below `root`."""

    def __init__(self, place: Place, root: Path) -> None:
        self._place, self._root = place, root
        self._home = unprivileged.private(place.directory / "home")
        self._env: dict[str, str] = {}
        self._port = 0
        self.management = ""
        """Where its management answers over HTTP."""

    @property
    def url(self) -> str:
        return f"amqp://{USER}:{PASSWORD}@{LOOPBACK}:{self._port}/"

    def start(self) -> Found:
        """On new ports, with new data."""
        _, version = guard.serve(self._place, self._command, self._ready, patience=PATIENCE)
        return Found(self.url, version)

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        guard.stop(self._place.directory)

    def start_again(self) -> None:
        """Where it was, with the data that it had."""
        guard.resume(self._place, self._argv(), self._port, self._ready, patience=PATIENCE)

    def ctl(self, *words: str) -> str:
        """What rabbitmqctl says."""
        done = unprivileged.run([self._server_home / "sbin/rabbitmqctl", *words], self._home, self._env)
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def write_names(self) -> None:
        """Have the names of all quorum queues on disk.

        RabbitMQ 3.10 writes them at its leisure (rabbitmq/ra#443). A node that is killed before does not know its queue
        any more: in its place it makes an empty one, without a leader, and what was confirmed is lost."""
        self.ctl("eval", "[ok = dets:sync(Table) || Table <- dets:all()].")

    @contextmanager
    def silent(self) -> Iterator[None]:
        """It is stopped for a while: connections stay, and nothing is answered."""
        with frozen(int((self._home / "node.pid").read_text())):
            yield

    @property
    def _server_home(self) -> Path:
        found = sorted((self._root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        if not found:
            raise NotHere(f"There is no RabbitMQ in {self._root / 'usr/lib/rabbitmq/lib'}.")
        return found[-1]

    def _command(self, port: int) -> Command:
        self._port = port
        management = free_port()
        self.management = f"http://{USER}:{PASSWORD}@{LOOPBACK}:{management}"
        addresses = {"listeners.tcp.default": f"{LOOPBACK}:{port}", "management.tcp.port": str(management)}
        self._write("rabbitmq.conf", "".join(f"{name} = {value}\n" for name, value in (SETTINGS | addresses).items()))
        self._write("plugins", "[rabbitmq_management].")
        self._write("serve.sh", SERVE)
        self._write("erl", ERL)
        erlang = self._root / "usr/lib/erlang"
        self._env = unprivileged.environment(
            HOME=os.fspath(self._home),
            PATH=f"{self._home}:{erlang / 'bin'}:{os.environ['PATH']}",
            ROOTDIR=os.fspath(erlang),
            BINDIR=os.fspath(self._erlang_programs(erlang)),
            EMU="beam",
            PROGNAME="erl",
            ERL_EPMD_PORT=str(free_port()),
            ERL_EPMD_ADDRESS=LOOPBACK,
            SERVER=os.fspath(self._server_home / "sbin/rabbitmq-server"),
            RABBITMQ_NODENAME=f"postroom{port}@localhost",
            RABBITMQ_CONFIG_FILE=os.fspath(self._home / "rabbitmq.conf"),
            RABBITMQ_CONF_ENV_FILE=os.fspath(self._home / "none"),
            RABBITMQ_ENABLED_PLUGINS_FILE=os.fspath(self._home / "plugins"),
            RABBITMQ_MNESIA_BASE=os.fspath(self._home / "data"),
            RABBITMQ_LOG_BASE=os.fspath(self._home / "log"),
            RABBITMQ_PID_FILE=os.fspath(self._home / "node.pid"),
            RABBITMQ_ALLOW_INPUT="1",  # then its script becomes the server, instead of starting one
            RABBITMQ_DIST_PORT=str(free_port()),
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=f"{ERLANG} -noinput -kernel inet_dist_use_interface {{127,0,0,1}}",
            RABBITMQ_CTL_ERL_ARGS="+S 1:1 +sbwt none",
        )
        return self._argv()

    def _argv(self) -> Command:
        (self._home / "node.pid").unlink(missing_ok=True)
        return Command(["/bin/sh", self._home / "serve.sh"], self._home, self._env, signal.SIGTERM)

    def _write(self, name: str, text: str) -> None:
        path = self._home / name
        path.write_text(text)
        path.chmod(0o755)
        unprivileged.give(path)

    @staticmethod
    def _erlang_programs(erlang: Path) -> Path:
        found = sorted(erlang.glob("erts-*/bin"))
        if not found:
            raise NotHere(f"There is no Erlang in {erlang}.")
        return found[-1]

    def _ready(self, port: int) -> str | None:
        """Its version once it answers; another that took the port knows no such user."""
        return version_at(f"amqp://{USER}:{PASSWORD}@{LOOPBACK}:{port}/")


def version_at(url: str) -> str | None:
    """The version of the RabbitMQ there; None if it does not let us in."""
    import asyncio
    import logging

    import aiormq

    async def ask() -> str:
        connection = aiormq.Connection(url)
        try:
            await asyncio.wait_for(connection.connect(), 5)
            version = connection.server_properties["version"]
        finally:
            await connection.close()
        return str(version)

    logger = logging.getLogger("aiormq.connection")
    before, logger.disabled = logger.disabled, True
    try:
        with ThreadPoolExecutor(1) as thread:  # whoever asks may be in a loop of its own
            return thread.submit(lambda: asyncio.run(ask())).result()
    except (aiormq.AMQPError, OSError, TimeoutError):
        return None
    finally:
        logger.disabled = before


@contextmanager
def rabbit_of_my_own(root: Path) -> Iterator[Rabbit]:
    """A RabbitMQ for one test, which may kill it and start it again. It ends with the test, or with the run."""
    run = current()
    key = f"amqp-own-{os.getpid()}-{secrets.token_hex(4)}"
    directory = run.directory / key
    directory.mkdir()
    directory.chmod(0o711)
    rabbit = Rabbit(Place(directory, run.owner, start), root)
    try:
        rabbit.start()
        yield rabbit
    finally:
        run.clean(key)
