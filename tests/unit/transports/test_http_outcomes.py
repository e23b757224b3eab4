"""Whose fault an answer is: the message's, the route's or the moment's. Every status, from 100 to 599."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.contracts.transport import Failed, Outcome, Rejected, Sent, Unavailable
from postroom.transports.http.outcomes import outcome_of

SENT = frozenset(range(200, 300))
LATER = frozenset({408, 409, 423, 425, 429, *range(500, 600)})
OF_THE_ROUTE = frozenset({*range(100, 200), *range(300, 400), 401, 403, 404, 407})
GONE = 410
SECOND = timedelta(seconds=1)


def expected(status: int) -> Outcome:
    code = f"HTTP_{status}"
    if status in SENT:
        return Sent(status)
    if status in LATER:
        return Failed(code, "said", SECOND)
    if status in OF_THE_ROUTE:
        return Unavailable(code, "said", SECOND)
    if status == GONE:
        return Unavailable("ENDPOINT_GONE", "said", until_told=True)
    return Rejected(code, "said")


@pytest.mark.parametrize("status", range(100, 600))
def test_every_status_is_the_fault_of_one(status: int) -> None:
    assert outcome_of(status, "said", SECOND) == expected(status)


@pytest.mark.parametrize(
    "status", [400, 402, 405, 406, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 424, 426, 451]
)
def test_what_the_receiver_has_against_the_message_stays_a_rejection(status: int) -> None:
    assert outcome_of(status, "") == Rejected(f"HTTP_{status}")
