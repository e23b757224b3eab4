"""Inboxes of a database that break one promise each, and the case of the contract that must catch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from postroom.contracts.inbox import UNFINISHED, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.stores.sqlite.blocking_connections import BlockingConnections, is_open
from postroom.stores.sqlite.connections import FileConnection, Writer
from postroom.stores.sqlite.inbox import BlockingSQLiteTransaction, SQLiteInbox, SQLiteInboxTransaction
from postroom.stores.sqlite.statements import Statements


class InboxSaboteur(SQLiteInbox):
    """SQLite's inbox with one thing wrong."""

    caught_by: ClassVar[str]


class KeepsWhatWasCancelled(InboxSaboteur):
    caught_by = "test_what_was_cancelled_from_inside_is_rolled_back_and_comes_out_as_it_is"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLiteInboxTransaction]:
        cancelled: asyncio.CancelledError | None = None
        async with super().transaction() as tx:
            try:
                yield tx
            except asyncio.CancelledError as exc:
                cancelled = exc
        if cancelled is not None:
            raise cancelled


class HidesThatAThreadWasEnded(InboxSaboteur):
    caught_by = "test_what_was_cancelled_from_inside_is_rolled_back_and_comes_out_as_it_is"

    @contextmanager
    def blocking(self) -> Iterator[BlockingSQLiteTransaction]:
        with super().blocking() as tx:
            try:
                yield tx
            except SystemExit as exc:
                raise RuntimeError("it ended") from exc


class KeepsItsTurnWhenToldToEnd(InboxSaboteur):
    caught_by = "test_a_handler_that_is_told_to_end_leaves_nothing_behind"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLiteInboxTransaction]:
        async with super().transaction() as tx:
            try:
                yield tx
            except asyncio.CancelledError:
                tx.handle.execute("COMMIT")
                raise


class ForgetsForEverybody(InboxSaboteur):
    caught_by = "test_what_one_consumer_forgets_another_still_knows"

    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        for other in await self.counts():
            if other != consumer:
                await super().purge(other, before, limit=limit)
        return await super().purge(consumer, before, limit=limit)


class ForgetsWhatIsDead(InboxSaboteur):
    caught_by = "test_what_was_handled_long_ago_is_forgotten_and_what_is_dead_is_not"

    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        await self.writer.run(lambda tx: tx.execute("DELETE FROM inbox WHERE outcome = 'dead'"))
        return await super().purge(consumer, before, limit=limit)


class CountsATryTwice(InboxSaboteur):
    caught_by = "test_a_try_that_was_counted_before_it_began_is_not_counted_again"

    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        attempts = await super().failed(consumer, event, code, error)
        return attempts + (code != UNFINISHED)


class FindsTheOldest(InboxSaboteur):
    caught_by = "test_what_is_on_record_of_a_message_is_found"

    async def known(self, query: KnownQuery) -> Sequence[Known]:
        return (await super().known(replace(query, limit=None)))[: query.limit]


class _CallsItWhole(BlockingSQLiteTransaction):
    def is_ended(self) -> bool:
        return False


class _TakesAClosedOneForAnOutage(BlockingSQLiteTransaction):
    def is_away(self) -> bool:
        return not is_open(self.handle)


class CallsAnEndedTransactionWhole(InboxSaboteur):
    caught_by = "test_a_transaction_that_its_sync_handler_ended_says_so_and_the_next_one_works"

    @contextmanager
    def blocking(self) -> Iterator[BlockingSQLiteTransaction]:
        with super().blocking() as tx:
            yield _CallsItWhole(tx.handle, tx.statements, tx.writer)


class CallsAnEndedTransactionOfAnAsyncHandlerWhole(InboxSaboteur):
    caught_by = "test_a_transaction_that_its_handler_ended_says_so_and_the_next_one_works"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLiteInboxTransaction]:
        async with super().transaction() as tx:
            yield SQLiteInboxTransaction(_CallsItWhole(tx.handle, tx.blocking.statements, tx.blocking.writer))


class TakesAClosedHandleForAnOutage(InboxSaboteur):
    caught_by = "test_a_transaction_that_its_sync_handler_ended_says_so_and_the_next_one_works"

    @contextmanager
    def blocking(self) -> Iterator[BlockingSQLiteTransaction]:
        with super().blocking() as tx:
            yield _TakesAClosedOneForAnOutage(tx.handle, tx.statements, tx.writer)


class _KeepsAClosedOne(BlockingConnections):
    def _roll_back(self, connection: FileConnection) -> None:
        super()._roll_back(connection)
        if connection not in self._idle:
            self._idle.append(connection)


class UsesAClosedHandleAgain(InboxSaboteur):
    caught_by = "test_a_transaction_that_its_handler_ended_says_so_and_the_next_one_works"

    def __init__(self, writer: Writer, statements: Statements) -> None:
        super().__init__(writer, statements)
        self._connections = _KeepsAClosedOne(writer)


class LeavesWhatWasCommittedTooEarly(InboxSaboteur):
    caught_by = "test_what_its_handler_committed_too_early_can_be_buried_all_the_same"
    keeps = False

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str, *, committed: bool = False) -> None:
        await super().bury(consumer, delivery, code, error, committed=committed and self.keeps)


def all_inbox_saboteurs() -> list[type[InboxSaboteur]]:
    """Every one of them."""
    return InboxSaboteur.__subclasses__()


class TakesTwoSourcesForOne(InboxSaboteur):
    caught_by = "test_two_sources_fail_and_die_apart"

    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        return await super().failed(consumer, Identity("shop", event.id), code, error)
