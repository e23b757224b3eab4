"""A MongoDB of our own: a replica set of one node, or a standalone server; made, run, killed and started again.

It journals what it acknowledges, as in production; a SIGKILL of the server takes nothing of that.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tests.servers import guard, start, unprivileged
from tests.servers.guard import Command
from tests.servers.model import Found, Place
from tests.servers.ports import LOOPBACK, listens
from tests.servers.run import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SET = "rs0"
MODEST = [
    "--wiredTigerCacheSizeGB",
    "0.25",
    "--oplogSize",
    "64",
    "--setParameter",
    "diagnosticDataCollectionEnabled=false",
    # A client that is killed leaves its transaction open for so long, by default for a minute; no test should wait for that.
    "--setParameter",
    "transactionLifetimeLimitSeconds=8",
]


class Mongod:
    """One server and its data, under a keeper in `place`."""

    def __init__(
        self, place: Place, program: Path, *, standalone: bool = False, parameters: Sequence[str] = ()
    ) -> None:
        self._place, self._program, self._standalone, self._parameters = place, program, standalone, parameters
        self._home = unprivileged.private(place.directory / "home")
        unprivileged.private(self._home / "data")
        self._port = 0

    @property
    def url(self) -> str:
        """Without a database in it."""
        options = "" if self._standalone else f"?replicaSet={SET}"
        return f"mongodb://{LOOPBACK}:{self._port}/{options}"

    def start(self) -> Found:
        """On a new port, with new data."""
        self._port, version = guard.serve(self._place, self._command, self._ready, patience=60)
        return Found(self.url, version)

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        guard.stop(self._place.directory)

    def start_again(self) -> None:
        """Where it was, with the data that it had."""
        guard.resume(self._place, self._command(self._port), self._port, self._ready, patience=60)

    def _command(self, port: int) -> Command:
        argv: list[str | Path] = [self._program, "--dbpath", self._home / "data", "--port", str(port), *MODEST]
        for parameter in self._parameters:
            argv += ["--setParameter", parameter]
        argv += ["--bind_ip", LOOPBACK, "--nounixsocket"]
        if not self._standalone:
            argv += ["--replSet", SET]
        else:
            argv.remove("--oplogSize")
            argv.remove("64")
        env = unprivileged.environment(HOME=os.fspath(self._home))
        return Command(argv, self._home, env, signal.SIGKILL)  # a server worth testing with survives it

    def _ready(self, port: int) -> str | None:
        """Its version once it takes writes; another that took the port has other data."""
        from pymongo import MongoClient
        from pymongo.errors import PyMongoError

        if not listens(port):
            return None
        with (
            suppress(PyMongoError),
            MongoClient[dict[str, Any]](LOOPBACK, port, directConnection=True, serverSelectionTimeoutMS=2000) as client,
        ):
            options = client.admin.command("getCmdLineOpts")["parsed"]
            if options["storage"]["dbPath"] != os.fspath(self._home / "data"):
                return None
            if not self._standalone:
                with suppress(PyMongoError):  # it was initiated before
                    member = {"_id": 0, "host": f"{LOOPBACK}:{port}"}
                    client.admin.command("replSetInitiate", {"_id": SET, "members": [member]})
            return self._writable(client)
        return None

    def _writable(self, client: Any) -> str | None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if client.admin.command("hello")["isWritablePrimary"]:
                return str(client.server_info()["version"])
            time.sleep(0.02)
        return None


class Second(Mongod):
    """The other node of a set of two: without it there is no majority, and so no primary."""

    def join(self, first: Mongod) -> None:
        """Become part of this server's set, which now elects within seconds, and always elects the first."""
        from pymongo import MongoClient

        with MongoClient[dict[str, Any]](first.url) as client:
            config = client.admin.command("replSetGetConfig")["config"]
            config["version"] += 1
            config["members"].append({"_id": 1, "host": f"{LOOPBACK}:{self._port}", "priority": 0, "votes": 1})
            config["settings"] |= {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
            client.admin.command("replSetReconfig", config)
            # It has no vote until it has all the data: then `newlyAdded` is taken out of the configuration.
            deadline = time.monotonic() + 60
            while (status := client.admin.command("replSetGetStatus"))["majorityVoteCount"] < len(status["members"]):
                assert time.monotonic() < deadline, "the second node has no vote yet"
                time.sleep(0.05)

    def _ready(self, port: int) -> str | None:
        """Its version once it listens: it is nothing yet."""
        from pymongo import MongoClient
        from pymongo.errors import PyMongoError

        with (
            suppress(PyMongoError),
            MongoClient[dict[str, Any]](LOOPBACK, port, directConnection=True, serverSelectionTimeoutMS=2000) as client,
        ):
            return str(client.server_info()["version"])
        return None


Server = TypeVar("Server", bound=Mongod)


@contextmanager
def mongod_of_my_own(
    program: Path, kind: type[Server], *, standalone: bool = False, parameters: Sequence[str] = ()
) -> Iterator[Server]:
    """A server for one test, which may kill it and start it again. It ends with the test, or with the run."""
    run = current()
    key = f"mongo-own-{os.getpid()}-{secrets.token_hex(4)}"
    directory = run.directory / key
    directory.mkdir()
    directory.chmod(0o711)
    server = kind(Place(directory, run.owner, start), program, standalone=standalone, parameters=parameters)
    try:
        server.start()
        yield server
    finally:
        run.clean(key)
