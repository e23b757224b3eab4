"""RabbitMQ: given, already here, or from the system's packages."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import apt
from tests.servers.model import Found, NotHere
from tests.servers.rabbit import Rabbit, version_at
from tests.servers.run import current

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Place, Source

PACKAGE = "rabbitmq-server"


def environment(place: Place) -> Found:
    """The server at POSTROOM_TEST_AMQP, as in amqp://guest:guest@127.0.0.1/."""
    url = os.environ.get("POSTROOM_TEST_AMQP")
    if not url or "://" not in url:
        raise NotHere("POSTROOM_TEST_AMQP is not set to a URL.")
    version = version_at(url)
    if version is None:
        raise NotHere("It does not let us in.")
    return Found(url, version)


def installed(place: Place) -> Found:
    """The one that is installed, with data of its own."""
    return Rabbit(place, Path("/")).start()


def unpacked(place: Place) -> Found:
    """The system's package and its Erlang, unpacked into a private prefix."""
    return Rabbit(place, apt.unpack(PACKAGE)).start()


def packaged(place: Place) -> Found:
    """The system's package, installed now. It leaves no server running."""
    apt.install(PACKAGE)
    return installed(place)


SOURCES: Mapping[str, Source] = {
    "environment": environment,
    "installed": installed,
    "unpacked": unpacked,
    "apt": packaged,
}


def programs() -> Path:
    """Below which directory RabbitMQ's programs are, on this machine."""
    here = Path("/")
    return here if any(here.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")) else apt.unpack(PACKAGE)


def fetch() -> None:
    """Have all of it here before a test's time begins to run. That it cannot be had is told by whoever needs it."""
    if "://" in os.environ.get("POSTROOM_TEST_AMQP", ""):
        return
    with current().locked("amqp-fetch"), suppress(NotHere, OSError):
        programs()
