"""Stores that break one promise about finding, requeueing and discarding each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from postroom.contracts.ops import Progress, Query, Record
from postroom.testing.saboteurs.outbox import Saboteur


class RequeueKeepsTheAttempts(Saboteur):
    caught_by = "test_a_requeued_dead_letter_goes_again_with_the_same_id"

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        attempts = {row.seq: row.attempts for row in self._matching(query)}
        number = await super().requeue(query, told=told)
        for seq, tries in attempts.items():
            self._rows[seq].attempts = tries
        return number


class RequeuesWhatIsInFlight(Saboteur):
    caught_by = "test_a_message_in_flight_is_neither_requeued_nor_discarded"

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        self._claims.clear()
        return await super().requeue(query, told=told)


class RequeuesWhatWasPublished(Saboteur):
    caught_by = "test_a_published_message_is_neither_requeued_nor_discarded"

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        for row in self._matching(query):
            row.outcome = "dead" if row.outcome == "published" else row.outcome
        return await super().requeue(query, told=told)


class LeavesTheKeyParked(Saboteur):
    caught_by = "test_discarding_the_dead_head_frees_its_key"

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        heads = [row for row in self._matching(query) if row.parks]
        number = await super().discard(query, now=now, told=told)
        for row in heads:
            row.parks, row.outcome = True, "dead"
        return number


class FindsTheOldestInstead(Saboteur):
    caught_by = "test_find_gives_the_newest_so_many_oldest_first"

    async def find(self, query: Query) -> Sequence[Record]:
        return (await super().find(replace(query, limit=None)))[: query.limit]


class DoesAllAtOnce(Saboteur):
    caught_by = "test_many_are_requeued_some_at_a_time"

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        count = await super().requeue(query)
        if told is not None:
            told(count)
        return count


class TakesBackWhatWasDone(Saboteur):
    caught_by = "test_a_requeue_that_ends_in_between_has_done_what_it_said"

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        if told is not None:
            told(1_000)
        return await super().requeue(query)


class KnowsNoPages(Saboteur):
    caught_by = "test_a_long_list_is_read_page_by_page"

    async def find(self, query: Query) -> Sequence[Record]:
        return await super().find(replace(query, before=None))


class DiscardsWhatStandsBehind(Saboteur):
    caught_by = "test_only_what_stands_before_is_discarded_when_that_is_asked"

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        return await super().discard(replace(query, before=None), now=now, told=told)


class LooksPastTheLastId(Saboteur):
    caught_by = "test_ids_are_found_by_where_they_lie"

    async def ids_between(self, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:  # noqa: ARG002 - that is the point
        return await super().ids_between(first, UUID(int=2**128 - 1), limit=limit)
