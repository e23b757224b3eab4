"""Who shares the lanes: who is alive, who is gone, and whom nobody needs to remember."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from postroom.contracts.lanes import Lane, RelayInfo
from postroom.relay.heartbeat import Company, company

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def relay(owner: str, *, silent: float = 0) -> RelayInfo:
    return RelayInfo(owner=owner, name=owner, seen_at=NOON - timedelta(seconds=silent))


def lanes(*owners: str | None) -> list[Lane]:
    return [Lane(number, 1, owner, NOON + LEASE if owner else None) for number, owner in enumerate(owners)]


def shared(lanes: list[Lane], *relays: RelayInfo, gone: Collection[str] = ()) -> Company:
    return company(lanes, relays, "me", LEASE, gone)


def test_the_lanes_are_shared_among_those_who_are_alive() -> None:
    assert shared(lanes(*["a"] * 6), relay("me"), relay("a"), relay("b", silent=29)).share == 2
    assert shared(lanes(*["a"] * 6), relay("me"), relay("a"), relay("b", silent=31)).share == 3


def test_who_is_not_on_record_yet_counts_too() -> None:
    assert shared(lanes(*["a"] * 6), relay("a")).share == 3


def test_who_is_gone_has_no_share_and_is_named() -> None:
    found = shared(lanes(*["a"] * 6), relay("me"), relay("a"), gone={"a"})
    assert (found.share, found.gone) == (6, ["a"])


def test_nobody_takes_itself_for_gone() -> None:
    assert shared(lanes("me"), relay("me"), gone={"me"}).gone == []


def test_a_dead_relay_is_forgotten_after_three_leases_and_not_before() -> None:
    assert shared(lanes(None), relay("me"), relay("a", silent=90)).forgotten == []
    assert shared(lanes(None), relay("me"), relay("a", silent=91)).forgotten == ["a"]


def test_a_dead_relay_that_owns_a_lane_is_not_forgotten() -> None:
    assert shared(lanes("a"), relay("me"), relay("a", silent=1_000)).forgotten == []


def test_nobody_forgets_itself() -> None:
    assert shared(lanes(None), relay("me", silent=1_000), relay("a")).forgotten == []
