"""What `postroom doctor` makes of what it sees: pure judgements."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import Counts
from postroom.ops.doctor import judge, judge_inbox
from postroom.testing.contracts._case import NOON, SECOND

MINUTE = timedelta(minutes=1)
RELAY = RelayInfo(owner="a", name="a", seen_at=NOON)
OWNED = [Lane(0, 1, "a", NOON + 30 * SECOND), Lane(1, 1, "a", NOON + 30 * SECOND)]
FREE = [OWNED[0], Lane(1, 1, None, None)]


def counts(lag: timedelta = timedelta(0), parked: int = 0, **by_status: int) -> Counts:
    known: dict[Any, int] = dict(by_status)
    return Counts(by_status=known, lag=lag, parked=parked)


def test_an_outbox_that_is_looked_after_has_nothing_wrong() -> None:
    assert judge(counts(pending=3, published=9, lag=MINUTE), OWNED, [RELAY], NOON) == []


def test_without_a_relay_nothing_is_wrong_while_nothing_waits() -> None:
    assert judge(counts(published=9), FREE, [], NOON) == []


def test_messages_that_wait_for_a_person_do_not_wait_for_a_relay() -> None:
    (said,) = judge(counts(pending=2, parked=2, dead=1), FREE, [RELAY], NOON)
    assert said.startswith("1 message is dead, and 2 messages behind: see `postroom list --status dead`")


@pytest.mark.parametrize(
    ("waiting", "said"), [(1, "1 message waits to be sent. "), (2, "2 messages wait to be sent. ")]
)
def test_messages_that_wait_while_a_lane_has_no_live_relay_are_told(waiting: int, said: str) -> None:
    (found,) = judge(counts(failed=waiting), FREE, [RELAY], NOON)
    assert found == f"{said}1 of 2 lanes has no live relay: 1. Start one: `postroom relay`."


def test_a_relay_that_lives_but_does_not_send_is_told() -> None:
    (found,) = judge(counts(pending=1, lag=6 * MINUTE), OWNED, [RELAY], NOON)
    assert found.startswith("The oldest message that is due waits since 6m, though relays live")


def test_dead_messages_are_told_by_inbox() -> None:
    found = judge_inbox({"mailing": {"dead": 2}, "billing": {"dead": 1, "handled": 5}, "shipping": {"handled": 1}})
    assert [each.partition(":")[0] for each in found] == [
        "1 message of the inbox billing is dead",
        "2 messages of the inbox mailing are dead",
    ]
    assert "`postroom inbox list --consumer billing`" in found[0]
