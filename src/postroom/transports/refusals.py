"""Whose fault is it that no connection could be made: a person's, who must fix a URL or a right, or the world's? Pure."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from postroom.errors import TransportError, TransportRefused, TransportUnavailable

REFUSALS = frozenset(
    {
        "AUTHENTICATION_FAILED",
        "DNS_FAILED",
        "NOT_ALLOWED",
        "NOT_AUTHORIZED",
        "NO_CREDENTIALS",
        "TLS_FAILED",
    }
)
"""Codes that do not pass by themselves: at a start they end it, so that a person hears of them at once. Later they are waited
for like any outage: it worked before, and somebody may be changing a password just now."""


def not_opened(code: str, sentence: str) -> TransportError:
    """The error for a connection that could not be made for this reason."""
    return TransportRefused(sentence) if code in REFUSALS else TransportUnavailable(sentence)


def why_not(error: BaseException) -> str | None:
    """DNS_FAILED or TLS_FAILED, where the system says so somewhere in this error; None: something else."""
    for each in _chain(error):
        if isinstance(each, socket.gaierror):
            return "DNS_FAILED"
        if isinstance(each, ssl.SSLError):
            return "TLS_FAILED"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came from: drivers put their own around the system's."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        # Some put it around as a mere argument, or as an attribute of their own.
        around = (each.__cause__, each.__context__, getattr(each, "os_error", None), *each.args)
        waiting += [other for other in around if isinstance(other, BaseException)]
