"""What a sender is told. Pure."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import NamedTuple

Headers = list[tuple[str, str]]

_TITLES = {
    400: "Not an event",
    401: "Not proven",
    404: "Nothing here",
    405: "Wrong method",
    408: "Too slow",
    413: "Too large",
    415: "Unknown format",
    503: "Not now",
}


class Answer(NamedTuple):
    """What the sender is told."""

    status: int
    headers: Headers
    body: bytes = b""


class Refused(Exception):
    """The request is answered without a delivery. Caught where it is answered."""

    def __init__(self, status: int, detail: str, *headers: tuple[str, str]) -> None:
        super().__init__(detail)
        self.answer = problem(status, detail, *headers)


def problem(status: int, detail: str, *headers: tuple[str, str]) -> Answer:
    """An answer that says what is wrong, as RFC 9457 has it."""
    body = json.dumps({"status": status, "title": _TITLES[status], "detail": detail}).encode()
    return Answer(status, [("content-type", "application/problem+json"), *headers], body)


def later(delay: timedelta, detail: str) -> Answer:
    """An answer that asks to send it again, after this delay; whole seconds are all that can be said."""
    return problem(503, detail, retry_after(math.ceil(max(delay.total_seconds(), 0))))


def retry_after(seconds: int) -> tuple[str, str]:
    """The header that says when to come again."""
    return ("retry-after", str(seconds))
