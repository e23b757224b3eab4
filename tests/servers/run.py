"""A test run: the processes that share servers, one of which owns them.

The owner is the process that lives as long as the run: the xdist controller, the only pytest process, or
`python -m tests.servers`. It cannot know what its workers need, so *the first process that needs a server
starts it*, under a file lock, and writes down where it is; the others read that. But it starts it under a
keeper, which answers to the owner and not to the worker: a worker that ends takes nothing from the others.
The owner stops everything in `close`; if it cannot (SIGKILL), the kernel frees the lock that it holds on the
file `owner`, and each keeper ends its server.

Workers find the run by an inherited environment variable: the owner must hold its lock before a worker asks,
and xdist's own PYTEST_XDIST_TESTRUNUID is made too late for that. Every other child inherits it, too, e.g. a
relay started by a test. Independent runs have directories of their own and never meet.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.servers import guard, places
from tests.servers.locks import flocked
from tests.servers.model import Found, Unavailable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

VARIABLE = "POSTROOM_SERVERS_RUN"


@dataclass(frozen=True)
class Running:
    """A server of a run, known to all its processes. It is a `Server`."""

    run: Run
    key: str
    name: str
    url: str
    version: str
    source: str

    @property
    def ours(self) -> bool:
        return guard.alive(self.run.directory / self.key)

    def stop(self) -> None:
        with self.run.locked(self.key):
            self.run.forget(self.key)


class Run:
    """The directory of a run. Create it with `Run.create()` to own it, or join it with `Run(directory)`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.owner = directory / "owner"
        self._owner_pid: int | None = None
        self._lock: IO[str] | None = None

    @classmethod
    def create(cls) -> Run:
        """A new run, owned by this process: its servers end with `close`, at exit, or when it is killed."""
        run = cls(places.new_directory())
        run._lock = lock = run.owner.open("w")
        fcntl.lockf(lock, fcntl.LOCK_EX)
        run._owner_pid = os.getpid()
        atexit.register(run.close)
        return run

    def locked(self, key: str) -> AbstractContextManager[None]:
        """The right to start or stop the server `key`, held by one thread of one process at a time."""
        return flocked(self.directory / f"{key}.lock")

    def recall(self, key: str) -> Running | None:
        """The server that was started before, if it still lives. Raises Unavailable if that was in vain."""
        try:
            facts = json.loads((self.directory / f"{key}.json").read_text())
        except FileNotFoundError:
            return None
        if "reasons" in facts:
            raise Unavailable(facts["name"], facts["reasons"])
        if (self.directory / key).exists() and not guard.alive(self.directory / key):
            self.forget(key)
            return None
        return Running(self, key, **facts)

    def remember(self, key: str, name: str, source: str, found: Found) -> Running:
        self._write(key, {"name": name, "source": source, "url": found.url, "version": found.version})
        return Running(self, key, name, found.url, found.version, source)

    def give_up(self, key: str, error: Unavailable) -> None:
        self._write(key, {"name": error.name, "reasons": error.reasons})

    def missing(self) -> list[Unavailable]:
        """The servers that some process of this run asked for in vain, from wherever they might come."""
        known = {path.stem: json.loads(path.read_text()) for path in sorted(self.directory.glob("*.json"))}
        return [
            Unavailable(key, facts["reasons"])
            for key, facts in known.items()
            if "reasons" in facts and facts["name"] == key
        ]

    def forget(self, key: str) -> None:
        """Stop what this run started under `key`, and let the next one who asks start anew."""
        (self.directory / f"{key}.json").unlink(missing_ok=True)
        self.clean(key)

    def clean(self, key: str) -> None:
        guard.stop(self.directory / key)
        shutil.rmtree(self.directory / key, ignore_errors=True)

    def close(self) -> None:
        """Stop all servers and remove the directory, if this process owns the run. Closing twice is once."""
        if self._owner_pid != os.getpid():  # a forked child runs our exit handlers, too
            return
        self._owner_pid = None
        atexit.unregister(self.close)
        for place in [path for path in self.directory.iterdir() if path.is_dir()]:
            self.clean(place.name)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock:
            self._lock.close()

    def _write(self, key: str, facts: dict[str, object]) -> None:
        path = self.directory / f"{key}.json"
        path.with_suffix(".new").write_text(json.dumps(facts))
        path.with_suffix(".new").replace(path)


_current: Run | None = None


def current() -> Run:
    """The run of this process: the one it has, else the one of its parent, else a new one that it owns."""
    global _current  # noqa: PLW0603 - there is one per process
    if _current is None or not _current.directory.exists():
        with suppress(KeyError):
            inherited = Path(os.environ[VARIABLE])
            if inherited.exists():
                _current = Run(inherited)
                return _current
        _current = Run.create()
        os.environ[VARIABLE] = os.fspath(_current.directory)
    return _current
