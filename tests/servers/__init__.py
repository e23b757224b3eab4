"""Real servers for tests: started on random loopback ports, shared by one test run, gone with it.

    server = start("postgres")      # the same one for every process of this run
    server.url                      # postgresql://postgres@127.0.0.1:40123/postgres

To add a server, write one file with `SOURCES`, the ways to get it in the order to try them, and add one line
to `REGISTRY`. A source is a function that is given a `Place` and returns `Found`, or raises `NotHere` with
the reason; `guard.serve` does most of the work. `run` says who owns the servers, `keeper` how they end.

POSTROOM_TEST_POSTGRES in the environment is a URL, or the key of one source ("wheel", "installed"). It is an
order: if that cannot be had nothing else is tried. A run meant for one version is not green with another.
"""

from __future__ import annotations

import os
import subprocess
from importlib import import_module
from typing import TYPE_CHECKING

from tests.servers.model import Found, NotHere, Place, Server, Source, Unavailable
from tests.servers.run import Run, current

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "REGISTRY",
    "Found",
    "NotHere",
    "Place",
    "Server",
    "Source",
    "Unavailable",
    "probe",
    "sources",
    "start",
]

REGISTRY = {
    "postgres": "tests.servers.postgres",
    "pgbouncer": "tests.servers.pgbouncer",
    "kafka": "tests.servers.kafka",
    "amqp": "tests.servers.amqp",
    "mariadb": "tests.servers.mariadb",
    "mongo": "tests.servers.mongo",
    "mongo_standalone": "tests.servers.mongo_standalone",
    "sqs": "tests.servers.sqs",
    "nats": "tests.servers.nats",
    "redis": "tests.servers.redis",
}


def start(name: str, source: str | None = None, run: Run | None = None) -> Server:
    """The server `name` of this run, started now if nobody has asked for it before.

    With `source` it comes from there and nowhere else. Raises Unavailable when it cannot be had; that, too,
    is found out once per run.
    """
    run = run or current()
    key = f"{name}-{source}" if source else name
    with run.locked(key):
        if known := run.recall(key):
            return known
        try:
            return _first(run, key, name, _candidates(name, source))
        except Unavailable as error:
            run.give_up(key, error)
            raise


def probe() -> Iterator[Server | Unavailable]:
    """Start each server of the registry, in a run of its own, and stop it when the next one is asked for."""
    run = Run.create()
    try:
        for name in REGISTRY:
            try:
                yield start(name, run=run)
            except Unavailable as error:
                yield error
    finally:
        run.close()


def sources(name: str) -> Mapping[str, Source]:
    """The ways to get the server `name`, by key, in the order to try them."""
    found: Mapping[str, Source] = import_module(REGISTRY[name]).SOURCES
    return found


def _candidates(name: str, source: str | None) -> Mapping[str, Source]:
    known = sources(name)
    ordered = os.environ.get(f"POSTROOM_TEST_{name.upper()}")
    key = source or (ordered and ("environment" if "://" in ordered else ordered))
    if not key:
        return known
    if key not in known:
        raise Unavailable(name, {key: f"There is no such source; there are {', '.join(known)}."})
    return {key: known[key]}


def _first(run: Run, key: str, name: str, candidates: Mapping[str, Source]) -> Server:
    reasons: dict[str, str] = {}
    for label, source in candidates.items():
        run.clean(key)  # what a source that failed, or a process that was killed, left there
        directory = run.directory / key
        directory.mkdir()
        directory.chmod(0o711)  # whatever the umask: the servers' user must pass through it
        try:
            found = source(Place(directory, run.owner, lambda needed: start(needed, run=run)))
        except NotHere as reason:
            reasons[label] = str(reason)
        except Unavailable as other:
            reasons[label] = f"It needs {other.name}, which cannot be had."
        except (OSError, ImportError, subprocess.SubprocessError) as error:
            reasons[label] = f"{type(error).__name__}: {error}"
        else:
            return run.remember(key, name, label, found)
    run.clean(key)
    raise Unavailable(name, reasons)
