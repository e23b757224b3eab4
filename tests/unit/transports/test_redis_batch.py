"""Replicas and disks are counted: fewer than the URL wants is no confirmation."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError

from postroom.transports.redis_streams.batch import Confirmation
from postroom.transports.redis_streams.url import read

REFUSED = ResponseError("WAITAOF cannot be used when numlocal is set but appendonly is disabled.")


@pytest.mark.parametrize(
    ("settings", "replies", "code"),
    [
        ("", [], None),
        ("wait=2", [2], None),
        ("wait=2", [3], None),
        ("wait=2", [1], "NOT_REPLICATED"),
        ("wait=1", [0], "NOT_REPLICATED"),
        ("wait=1", [REFUSED], "NOT_REPLICATED"),
        ("waitaof=1", [[1, 0]], None),
        ("waitaof=1", [[0, 1]], "NOT_ON_DISK"),
        ("waitaof=1", [REFUSED], "NOT_ON_DISK"),
        ("wait=1&waitaof=1", [1, [1, 0]], None),
        ("wait=1&waitaof=1", [0, [1, 0]], "NOT_REPLICATED"),
        ("wait=1&waitaof=1", [1, [0, 0]], "NOT_ON_DISK"),
    ],
)
def test_what_is_missing_is_told_and_may_have_been_delivered(
    settings: str, replies: list[Any], code: str | None
) -> None:
    missing = Confirmation(read(f"redis://server/orders?{settings}")).missing(replies)
    assert (missing and (missing.code, missing.unknown)) == (code and (code, True))


def test_it_is_waited_for_as_long_as_there_is_time_and_never_for_ever() -> None:
    confirmation = Confirmation(read("redis://server/orders?wait=2&waitaof=1"))
    assert confirmation.commands(2.0) == [["WAIT", 2, 1800], ["WAITAOF", 1, 0, 1800]]
    assert confirmation.commands(0.0) == [["WAIT", 2, 1], ["WAITAOF", 1, 0, 1]]
    assert Confirmation(read("redis://server/orders")).commands(2.0) == []
