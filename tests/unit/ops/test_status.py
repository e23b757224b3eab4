"""The read model of an outbox: what one look at a store says, and what follows from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import Counts
from postroom.contracts.outbox import Buried
from postroom.contracts.store import Store
from postroom.ops.status import RelayShare, RelaySnapshot, StatusSnapshot, look, look_at_relays
from postroom.stores.memory import MemoryStore
from postroom.stores.memory.outbox import MemoryOutbox
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts._case import LEASE, MINUTE, NOON, SECOND, a_message, a_relay


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "post.db")
    async with opened:
        await opened.schema.migrate()
        yield opened


def relay(owner: str, seen: timedelta | None = timedelta(0)) -> RelayInfo:
    return RelayInfo(owner=owner, name=owner, seen_at=None if seen is None else NOON - seen)


def lane(number: int, owner: str | None, until: timedelta | None = MINUTE) -> Lane:
    return Lane(number, 1, owner, None if until is None or owner is None else NOON + until)


def sending(lanes: list[Lane], *relays: RelayInfo, **options: Any) -> RelaySnapshot:
    return RelaySnapshot(lanes=lanes, relays=relays, now=NOON, **options)


# ── asking ──


async def test_one_look_has_the_messages_the_lanes_and_the_relays(store: Store) -> None:
    await store.outbox.put([a_message(key="a"), a_message(key="a"), a_message(key="b")])
    at_work = await a_relay(store)
    await store.lanes.join(relay("relay-a"), now=NOON)
    await at_work.settle(await at_work.claim(limit=1), Buried("HTTP_422", "no"))
    state = await look(store, now=NOON)
    assert (state.open, state.counts.parked, state.waiting, state.dead) == (2, 1, 1, 1)
    assert (len(state.lanes), state.owned) == (64, {"relay-a": 64})
    assert [(share.owner, share.lanes, share.state, share.free_in) for share in state.shares] == [
        ("relay-a", 64, "alive", LEASE)
    ]
    assert state.orphans == []


class NeverCounts(MemoryOutbox):
    """A store whose messages must not be counted."""

    async def counts(self, **_: Any) -> Counts:
        raise AssertionError("it was asked to count")


async def test_whoever_asks_for_relays_alone_counts_no_messages() -> None:
    async with MemoryStore(NeverCounts()) as store:
        assert len((await look_at_relays(store)).orphans) == 64


# ── what follows from it ──


def test_a_relay_with_lanes_is_judged_by_its_own_lease() -> None:
    silent, heard = relay("silent", 50 * SECOND), relay("heard", 10 * SECOND)
    snapshot = sending([lane(0, "silent", 10 * SECOND), lane(1, "heard")], silent, heard, patience=10 * MINUTE)
    assert [snapshot.state(each) for each in (silent, heard)] == ["silent", "alive"]
    assert snapshot.orphans == [0]


@pytest.mark.parametrize(("silence", "state"), [(MINUTE, "alive"), (MINUTE + SECOND, "silent"), (None, "silent")])
def test_a_relay_without_lanes_is_judged_by_patience(silence: timedelta | None, state: str) -> None:
    idle = relay("idle", silence)
    assert sending([lane(0, None)], idle, patience=MINUTE).state(idle) == state


def test_a_relay_whose_process_is_gone_is_gone_whatever_its_lease_says() -> None:
    gone = relay("gone")
    snapshot = sending([lane(0, "gone")], gone, gone=frozenset(["gone"]))
    assert (snapshot.state(gone), snapshot.is_alive(gone), snapshot.orphans) == ("gone", False, [0])


def test_shares_are_those_of_the_relays_on_record_and_then_of_owners_that_are_on_none() -> None:
    at_work, idle = relay("at work"), relay("idle")
    snapshot = sending([lane(0, "z"), lane(1, "at work"), lane(2, "at work", -SECOND), lane(3, "b")], at_work, idle)
    assert snapshot.shares == [
        RelayShare(owner="at work", relay=at_work, state="alive", lanes=2, free_in=MINUTE),
        RelayShare(owner="idle", relay=idle, state="alive", lanes=0, free_in=None),
        RelayShare(owner="b", relay=None, state="gone", lanes=1, free_in=MINUTE),
        RelayShare(owner="z", relay=None, state="gone", lanes=1, free_in=MINUTE),
    ]


def test_lanes_whose_lease_is_over_can_be_taken_now() -> None:
    (share,) = sending([lane(0, "a", -MINUTE)], relay("a")).shares
    assert (share.state, share.free_in) == ("silent", timedelta(0))


def test_messages_behind_a_dead_one_do_not_wait_for_a_relay() -> None:
    counts = Counts(by_status={"pending": 5, "sending": 1, "failed": 2, "dead": 3}, lag=MINUTE, parked=4)
    state = StatusSnapshot(counts=counts, lanes=[], relays=[], now=NOON)
    assert (state.open, state.waiting, state.dead, state.lag) == (8, 4, 3, MINUTE)
