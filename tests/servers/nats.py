"""NATS with JetStream: given, already here, or from a wheel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.servers.model import Found, NotHere
from tests.servers.nats_server import NatsServer, greeting, wheel_program
from tests.servers.ports import LOOPBACK, listens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Place, Source

USUAL_PORT = 4222


def environment(place: Place) -> Found:
    """The server at POSTROOM_TEST_NATS, as in nats://127.0.0.1:4222."""
    url = os.environ.get("POSTROOM_TEST_NATS")
    if not url or "://" not in url:
        raise NotHere("POSTROOM_TEST_NATS is not set to a URL.")
    host, _, port = url.partition("://")[2].strip("/").rpartition("@")[2].partition(":")
    return _answering(url.rstrip("/"), host, int(port or USUAL_PORT))


def local(place: Place) -> Found:
    """A server on the usual port."""
    if not listens(USUAL_PORT):
        raise NotHere(f"Nothing listens on port {USUAL_PORT}.")
    return _answering(f"nats://{LOOPBACK}:{USUAL_PORT}", LOOPBACK, USUAL_PORT)


def wheel(place: Place) -> Found:
    """One of our own, from a wheel that brings nothing else."""
    return NatsServer(place, wheel_program()).start()


SOURCES: Mapping[str, Source] = {"environment": environment, "local": local, "wheel": wheel}


def _answering(url: str, host: str, port: int) -> Found:
    """A server that we did not start. NotHere unless it answers and has JetStream."""
    try:
        says = greeting(host, port)
    except OSError as error:
        raise NotHere(f"It does not answer: {error}") from None
    if not says.get("jetstream"):
        raise NotHere("It has no JetStream; start it with -js.")
    return Found(url, str(says["version"]))
