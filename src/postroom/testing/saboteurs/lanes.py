"""Stores that break one promise about lanes, leases and relays each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.contracts.outbox import Retry
from postroom.stores.memory.outbox import Row
from postroom.testing.saboteurs.outbox import Saboteur


class ForgetsLeases(Saboteur):
    caught_by = "test_a_lane_has_one_owner"

    def _takeable(self, lane: Lane, now: datetime) -> bool:  # noqa: ARG002 - that is the sabotage
        return True


class NeverTakesOver(Saboteur):
    caught_by = "test_a_lane_is_taken_over_when_its_lease_ran_out_and_not_before"

    def _takeable(self, lane: Lane, now: datetime) -> bool:  # noqa: ARG002 - that is the sabotage
        return lane.owner is None


class TakesOverTooEarly(Saboteur):
    caught_by = "test_a_lane_is_taken_over_when_its_lease_ran_out_and_not_before"

    def _takeable(self, lane: Lane, now: datetime) -> bool:
        return super()._takeable(lane, now + timedelta(seconds=10))


class WaitsForTheLeaseOfTheGone(Saboteur):
    caught_by = "test_the_lanes_of_an_owner_known_to_be_gone_are_taken_at_once"

    async def take(self, owner: str, *, gone: Collection[str] = (), **terms: Any) -> Sequence[Lane]:  # noqa: ARG002 - that is the sabotage
        return await super().take(owner, **terms)


class TakesAllLanesWhenOneOwnerIsGone(Saboteur):
    caught_by = "test_the_lanes_of_those_who_are_not_gone_wait_for_their_lease"

    async def take(self, owner: str, *, gone: Collection[str] = (), **terms: Any) -> Sequence[Lane]:
        owners = [lane.owner for lane in self._lanes if lane.owner is not None]
        return await super().take(owner, gone=owners if gone else (), **terms)


class LeavesTheClaimsOfTheGone(Saboteur):
    caught_by = "test_the_lanes_of_an_owner_known_to_be_gone_are_taken_at_once"

    async def take(self, owner: str, *, gone: Collection[str] = (), **terms: Any) -> Sequence[Lane]:
        kept = dict(self._claims) if gone else {}
        taken = await super().take(owner, gone=gone, **terms)
        self._claims |= kept
        return taken


class ForgetsTheProcessOfARelay(Saboteur):
    caught_by = "test_a_relay_is_known_from_joining_to_leaving"

    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        await super().join(replace(relay, process=""), now=now)


class KeepsTheEpoch(Saboteur):
    caught_by = "test_the_epoch_grows_with_each_taking"

    async def take(
        self,
        owner: str,
        *,
        limit: int,
        lease: timedelta,
        lost: OnLeaseLost,
        gone: Collection[str] = (),
        now: datetime | None = None,
    ) -> Sequence[Lane]:
        taken = await super().take(owner, limit=limit, lease=lease, lost=lost, gone=gone, now=now)
        same = [replace(lane, epoch=1) for lane in taken]
        for lane in same:
            self._lanes[lane.lane] = lane
        return same


class RenewsForAnyone(Saboteur):
    caught_by = "test_a_lost_lane_cannot_be_renewed"

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        await super().renew(owner, lanes, lease=lease, now=now)
        return frozenset(lanes)


class RenewsAtAnyEpoch(Saboteur):
    caught_by = "test_a_lane_retaken_by_its_old_owner_is_not_renewed_at_the_old_epoch"

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        current = {lane: self._lanes[lane].epoch for lane in lanes}
        return await super().renew(owner, current, lease=lease, now=now)


class ReleasesBeforeItIsDrained(Saboteur):
    caught_by = "test_a_lane_with_something_in_flight_is_not_released"

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        claims, self._claims = self._claims, {}
        released = await super().release(owner, lanes)
        self._claims = claims
        return released


class ReleasesForAnyone(Saboteur):
    caught_by = "test_a_lane_of_another_owner_or_epoch_is_not_released"

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:  # noqa: ARG002 - that is the sabotage
        self._lanes = [replace(lane, owner=None, lease_until=None) for lane in self._lanes]
        return frozenset(lanes)


class LeavesTheClaimsOfTheDead(Saboteur):
    caught_by = "test_what_was_in_flight_gets_an_attempt_and_a_wait"

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        pass


class ForgetsTheAttemptOfTheDead(Saboteur):
    caught_by = "test_what_was_in_flight_gets_an_attempt_and_a_wait"

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:  # noqa: ARG002 - that is the sabotage
        super()._let_go(lane, lambda _: Retry(timedelta(0), "LEASE_LOST", spent=False), now)


class NeverBuriesWhatKillsItsRelay(Saboteur):
    caught_by = "test_what_was_lost_with_its_relay_too_often_is_buried"

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        super()._let_go(lane, lambda _: lost(1), now)


class SendsTheLostWithOthers(Saboteur):
    caught_by = "test_what_was_lost_twice_with_its_relay_travels_alone"

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        super()._let_go(lane, lost, now)
        for row in self._rows.values():
            row.lost = min(row.lost, 1)


class BuriesWhoWasLostInCompany(Saboteur):
    caught_by = "test_who_is_lost_in_company_is_never_buried_for_it"

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        self._alone = set(self._claims)
        super()._let_go(lane, lost, now)


class BuriesWhoWasLostForTheFirstTime(Saboteur):
    caught_by = "test_who_was_alone_by_chance_is_not_buried_for_it"

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        for row in self._rows.values():
            row.lost += 2
        super()._let_go(lane, lost, now)


class SendsInnocentsWithTheLost(Saboteur):
    caught_by = "test_an_innocent_does_not_travel_with_what_was_lost"

    def _line(self, lane: int, now: datetime) -> list[Row]:
        marked = {row.seq: row.lost for row in self._rows.values()}
        for row in self._rows.values():
            row.lost = 0
        line = super()._line(lane, now)
        for seq, lost in marked.items():
            self._rows[seq].lost = lost
        return line
