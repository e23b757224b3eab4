"""Outboxes that break one promise of writing, claiming, settling or watching each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, repeat
from typing import Any, ClassVar

from postroom.config.tables import TableNames
from postroom.contracts.lanes import OnLeaseLost
from postroom.contracts.outbox import ERROR_MAX, Buried, Claim, Retry, Settled, Settlement, Verdict, per_lane
from postroom.message import Message
from postroom.stores.connections import OwnTransaction, handle_of
from postroom.stores.memory.outbox import MemoryOutbox, Row


class Saboteur(MemoryOutbox):
    """The memory store with one thing wrong."""

    caught_by: ClassVar[str]


# ── writing ──


class PutsOutsideTheTransaction(Saboteur):
    caught_by = "test_a_rolled_back_message_never_existed"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[OwnTransaction]:
        rows: list[Row] = []

        async def write(messages: Sequence[Message], _: TableNames) -> None:
            for message in messages:
                rows.append(self.written(message, rows))

        async with handle_of(write) as handle:
            try:
                yield handle
            finally:
                self.commit(rows)


class ShowsWhatIsNotCommitted(Saboteur):
    caught_by = "test_an_uncommitted_message_is_invisible_and_a_late_one_is_found"

    def written(self, message: Message, others: Sequence[Row]) -> Row:
        row = super().written(message, others)
        self._rows[row.seq] = row
        return row


class NeverLooksBack(Saboteur):
    caught_by = "test_an_uncommitted_message_is_invisible_and_a_late_one_is_found"
    last = 0

    def _line(self, lane: int, now: datetime) -> list[Row]:
        line = [row for row in super()._line(lane, now) if row.seq > self.last]
        self.last = max([self.last, *(row.seq for row in line)])
        return line


class WritesWhatItCan(Saboteur):
    caught_by = "test_many_are_all_or_none"

    async def put(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await super().put([message])


class TakesAnIdTwice(Saboteur):
    caught_by = "test_a_known_id_is_refused"

    def written(self, message: Message, others: Sequence[Row]) -> Row:
        return replace(super().written(Message(message.type), others), message=message)


class WritesBackwards(Saboteur):
    caught_by = "test_messages_keep_the_order_they_were_written_in"

    async def put(self, messages: Sequence[Message]) -> None:
        await super().put(messages[::-1])


class ReadsEveryBodyAsText(Saboteur):
    caught_by = "test_the_body_comes_back_byte_for_byte"

    def written(self, message: Message, others: Sequence[Row]) -> Row:
        row = super().written(message, others)
        body = None if message.body is None else message.body.decode(errors="replace").encode()
        return replace(row, message=message.replace(body=body))


class DropsTheHeaders(Saboteur):
    caught_by = "test_every_field_comes_back_as_it_was_given"

    def written(self, message: Message, others: Sequence[Row]) -> Row:
        return replace(super().written(message, others), message=message.replace(headers={}))


# ── claiming and settling ──


class ClaimsForAnyone(Saboteur):
    caught_by = "test_a_lane_of_another_owner_gives_nothing"

    async def claim(self, owner: str, lanes: Mapping[int, int], *, limit: int, **how: Any) -> Sequence[Claim]:
        owners = {self._lanes[lane].owner or owner for lane in lanes}
        return await super().claim(owners.pop(), lanes, limit=limit, **how)


class ClaimsAtAnyEpoch(Saboteur):
    caught_by = "test_a_lane_at_an_older_epoch_gives_nothing"

    async def claim(self, owner: str, lanes: Mapping[int, int], *, limit: int, **how: Any) -> Sequence[Claim]:
        return await super().claim(owner, {lane: self._lanes[lane].epoch for lane in lanes}, limit=limit, **how)


class ClaimsWhatIsInFlight(Saboteur):
    caught_by = "test_a_message_is_claimed_once"

    def _busy(self, lane: int) -> bool:  # noqa: ARG002 - that is the sabotage
        return False


class ClaimsAroundWhatIsInFlight(Saboteur):
    """Leaves out the messages in flight, but not their keys."""

    caught_by = "test_a_lane_gives_nothing_more_while_a_claim_of_it_is_in_flight"

    def _busy(self, lane: int) -> bool:  # noqa: ARG002 - that is the sabotage
        return False

    def _line(self, lane: int, now: datetime) -> list[Row]:
        return [row for row in super()._line(lane, now) if self._in_flight(row) is None]


class UsesClaimIdsAgain(Saboteur):
    caught_by = "test_claim_ids_are_never_used_again"

    async def claim(self, owner: str, lanes: Mapping[int, int], *, limit: int, **how: Any) -> Sequence[Claim]:
        if not self._claims:
            self._claim_ids = count(1)
        return await super().claim(owner, lanes, limit=limit, **how)


class IgnoresTheLimit(Saboteur):
    caught_by = "test_the_limit_is_kept"

    async def claim(self, owner: str, lanes: Mapping[int, int], *, limit: int, **how: Any) -> Sequence[Claim]:
        return await super().claim(owner, lanes, limit=limit * 100, **how)


class ServesTheBusiestLaneFirst(Saboteur):
    caught_by = "test_one_busy_lane_does_not_starve_the_others"

    async def claim(self, owner: str, lanes: Mapping[int, int], *, limit: int, **how: Any) -> Sequence[Claim]:
        busiest = max(lanes, key=lambda lane: len(self._line(lane, how.get("now") or datetime.now(UTC))))
        return await super().claim(owner, {busiest: lanes[busiest]}, limit=limit, **how)


class TakesTheNewestFirst(Saboteur):
    caught_by = "test_the_oldest_of_a_key_goes_first"

    def _line(self, lane: int, now: datetime) -> list[Row]:
        return super()._line(lane, now)[::-1]


class CutsBeforeItFilters(Saboteur):
    caught_by = "test_many_waiting_messages_do_not_hide_the_others_behind_them"

    def _line(self, lane: int, now: datetime) -> list[Row]:
        first = sorted(row.seq for row in self._rows.values() if row.lane == lane and row.settled_at is None)
        window = set(first[: per_lane(100, len(self._lanes))])
        return [row for row in super()._line(lane, now) if row.seq in window]


class SendsBeforeItsTime(Saboteur):
    caught_by = "test_a_message_does_not_go_before_its_time"

    def _line(self, lane: int, now: datetime) -> list[Row]:
        return super()._line(lane, now + timedelta(hours=1))


class HoldsTheKeyForAFutureMessage(Saboteur):
    caught_by = "test_a_message_that_is_not_due_does_not_hold_its_key"

    def _held(self, lane: int, now: datetime) -> set[str]:
        future = {str(row.message.key) for row in self._rows.values() if row.lane == lane and not row.due(now)}
        return super()._held(lane, now) | future


class LetsAKeyPassItsWaitingHead(Saboteur):
    caught_by = "test_a_key_waits_as_a_whole_while_its_head_waits"

    def _held(self, lane: int, now: datetime) -> set[str]:  # noqa: ARG002 - that is the sabotage
        return {str(row.message.key) for row in self._rows.values() if row.outcome == "dead" and row.parks}


class HoldsAKeyThatRecovered(Saboteur):
    caught_by = "test_a_key_that_recovered_does_not_wait_again_when_the_clock_is_set_back"

    def _held(self, lane: int, now: datetime) -> set[str]:
        sent = [row for row in self._rows.values() if row.lane == lane and row.outcome == "published"]
        return super()._held(lane, now) | {str(row.message.key) for row in sent if not row.due(now)}


class ForgetsToPark(Saboteur):
    caught_by = "test_a_dead_head_parks_its_key"

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
        super()._record(row, verdict, now)
        row.parks = False


class ParksWhatShouldSkip(Saboteur):
    caught_by = "test_a_dead_head_that_skips_lets_its_key_go_on"

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
        super()._record(row, verdict, now)
        row.parks = row.outcome == "dead"


class SettlesWithoutTheFence(Saboteur):
    caught_by = "test_a_relay_that_lost_its_lane_changes_nothing"

    def _settle(self, settlement: Settlement, now: datetime) -> Settled:
        self._claims.setdefault(settlement.claim.id, (settlement.claim, now))
        return super()._settle(settlement, now)


class FencesByOwnerAlone(Saboteur):
    caught_by = "test_a_stale_batch_of_the_same_owner_changes_nothing"

    def _settle(self, settlement: Settlement, now: datetime) -> Settled:
        if self._lanes[settlement.claim.lane].owner == settlement.claim.owner:
            self._claims.setdefault(settlement.claim.id, (settlement.claim, now))
        return super()._settle(settlement, now)


class CallsARepeatedSettleLost(Saboteur):
    caught_by = "test_settling_twice_counts_once"

    def _settle(self, settlement: Settlement, now: datetime) -> Settled:
        answer = super()._settle(settlement, now)
        return "lost" if answer == "already" else answer


class SettlesAllOrNothing(Saboteur):
    caught_by = "test_each_claim_is_settled_or_lost_by_itself"

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        if any(settlement.claim.id not in self._claims for settlement in settlements):
            return dict(zip((settlement.claim.id for settlement in settlements), repeat("already"), strict=False))
        return await super().settle(settlements, now=now)


class SpendsAnAttemptOnWhatWasNotSent(Saboteur):
    caught_by = "test_what_was_not_sent_is_untouched_and_comes_again"

    def _settle(self, settlement: Settlement, now: datetime) -> Settled:
        for claimed in settlement.claim.messages:
            self._rows[claimed.seq].attempts += 1
        return super()._settle(settlement, now)


class SpendsAnAttemptOnAnOutage(Saboteur):
    caught_by = "test_an_unavailable_broker_spends_no_attempt"

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
        super()._record(row, replace(verdict, spent=True) if isinstance(verdict, Retry) else verdict, now)


class RetriesAtOnce(Saboteur):
    caught_by = "test_a_failed_message_waits_until_it_is_due"

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
        super()._record(row, replace(verdict, after=timedelta(0)) if isinstance(verdict, Retry) else verdict, now)


class KeepsWholeErrors(Saboteur):
    caught_by = "test_an_error_is_kept_and_cut"

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
        super()._record(row, verdict, now)
        if isinstance(verdict, Retry):
            row.error = verdict.error


class KeepsErrorsAsTheyCome(Saboteur):
    caught_by = "test_an_error_of_any_text_is_settled"

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
        super()._record(row, verdict, now)
        if isinstance(verdict, Retry):
            row.error = verdict.error[:ERROR_MAX]


class CannotWriteDownWhatIsSaidOfTheLost(Saboteur):
    caught_by = "test_what_was_lost_is_let_go_whatever_is_said_of_it"

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        if isinstance(said := lost(1), Buried):
            said.error.encode()
        super()._let_go(lane, lost, now)


class ForgetsClaimsWithoutAnAnswer(Saboteur):
    caught_by = "test_a_claim_whose_answer_was_lost_is_dropped_untouched"

    def _drop_orphans(self, lanes: Collection[int]) -> None:  # noqa: ARG002 - that is the sabotage
        return None


class DropsOrphansForAnyone(Saboteur):
    caught_by = "test_a_doubt_about_anothers_lane_changes_nothing"

    async def claim(self, owner: str, lanes: Mapping[int, int], *, limit: int, **how: Any) -> Sequence[Claim]:
        self._drop_orphans(how.get("doubtful", ()))
        return await super().claim(owner, lanes, limit=limit, **how)


class DropsWhatIsInNoDoubt(Saboteur):
    caught_by = "test_only_in_doubtful_lanes_is_anything_dropped"

    def _drop_orphans(self, lanes: Collection[int]) -> None:
        if lanes:
            self._claims.clear()


class LooksIntoItsDoubtOnlyWhereItClaims(Saboteur):
    caught_by = "test_every_doubt_is_looked_into_whatever_the_limit"

    def _drop_orphans(self, lanes: Collection[int]) -> None:
        super()._drop_orphans(sorted(lanes)[:1])


class HasNoClockOfItsOwn(Saboteur):
    caught_by = "test_the_store_has_a_clock_of_its_own_for_claims"

    async def claim(self, owner: str, lanes: Mapping[int, int], *, limit: int, **how: Any) -> Sequence[Claim]:
        how["now"] = how.get("now") or datetime(2200, 1, 1, tzinfo=UTC)
        return await super().claim(owner, lanes, limit=limit, **how)


# ── watching ──


class SleepsThroughCommits(Saboteur):
    caught_by = "test_a_watch_tells_when_it_stands_and_when_a_message_was_committed"

    def _wake(self) -> None:
        return None
