"""What `postroom doctor` makes of what it sees: pure judgements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import Counts
from postroom.ops.doctor import judge, judge_inbox
from postroom.ops.status import StatusSnapshot
from postroom.testing.contracts._case import NOON, SECOND

MINUTE = timedelta(minutes=1)
RELAY = RelayInfo(owner="a", name="a", seen_at=NOON)
OWNED = [Lane(0, 1, "a", NOON + 30 * SECOND), Lane(1, 1, "a", NOON + 30 * SECOND)]
FREE = [OWNED[0], Lane(1, 1, None, None)]


def state(
    lanes: Sequence[Lane],
    relays: Sequence[RelayInfo],
    *,
    lag: timedelta = timedelta(0),
    parked: int = 0,
    gone: Sequence[str] = (),
    **by_status: int,
) -> StatusSnapshot:
    """An outbox at noon."""
    known: dict[Any, int] = dict(by_status)
    counts = Counts(by_status=known, lag=lag, parked=parked)
    return StatusSnapshot(counts=counts, lanes=lanes, relays=relays, now=NOON, gone=frozenset(gone))


def test_an_outbox_that_is_looked_after_has_nothing_wrong() -> None:
    assert judge(state(OWNED, [RELAY], pending=3, published=9, lag=MINUTE)) == []


def test_without_a_relay_nothing_is_wrong_while_nothing_waits() -> None:
    assert judge(state(FREE, [], published=9)) == []


def test_messages_that_wait_for_a_person_do_not_wait_for_a_relay() -> None:
    (said,) = judge(state(FREE, [RELAY], pending=2, parked=2, dead=1))
    assert said.startswith("1 message is dead, and 2 messages behind: see `postroom list --status dead`")


@pytest.mark.parametrize(
    ("waiting", "said"), [(1, "1 message waits to be sent. "), (2, "2 messages wait to be sent. ")]
)
def test_messages_that_wait_while_a_lane_has_no_live_relay_are_told(waiting: int, said: str) -> None:
    (found,) = judge(state(FREE, [RELAY], failed=waiting))
    assert found == f"{said}1 of 2 lanes has no live relay: 1. Start one: `postroom relay`."


def test_a_relay_that_lives_but_does_not_send_is_told() -> None:
    (found,) = judge(state(OWNED, [RELAY], pending=1, lag=6 * MINUTE))
    assert found.startswith("The oldest due message has been waiting for 6m although relays are running")


def test_dead_messages_are_told_by_inbox() -> None:
    found = judge_inbox({"mailing": {"dead": 2}, "billing": {"dead": 1, "handled": 5}, "shipping": {"handled": 1}})
    assert [each.partition(":")[0] for each in found] == [
        "1 message of the inbox billing is dead",
        "2 messages of the inbox mailing are dead",
    ]
    assert "`postroom inbox list --consumer billing`" in found[0]


def test_messages_that_wait_for_a_relay_whose_process_is_gone_are_told() -> None:
    (found,) = judge(state(OWNED, [RELAY], pending=1, gone=["a"]))
    assert found.startswith("1 message waits to be sent. 2 of 2 lanes have no live relay")


def test_what_to_do_about_the_codes_of_dead_messages_is_told() -> None:
    failures = [("HTTP_404", "no"), ("MAX_ATTEMPTS", "HTTP_404: no"), ("MINE", "odd")]
    (found,) = judge(state(OWNED, [RELAY], dead=3), failures)
    assert found.endswith("requeue or discard. HTTP_404: fix the URL, or the receiver.")
    *_, last = judge_inbox({"billing": {"dead": 1}, "mailing": {"dead": 1}}, [("NO_HANDLER", "")])
    assert last.endswith("and requeue. NO_HANDLER: add a handler, then requeue.")
