"""Messages on their way out: what is done alike on every server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Protocol

from postroom.config.tables import TableNames
from postroom.contracts.outbox import Claim, Settled, Settlement, Verdict
from postroom.message import Message
from postroom.stores.connections import OwnTransaction, handle_of
from postroom.stores.sql.parts import (
    AConnection,
    Connection_contra,
    Connections,
    Part,
    Statements,
    Verdicts,
    in_transaction,
    single_statement,
)


class Claiming(Protocol[Connection_contra]):
    """Chooses and claims messages, inside the transaction it is given."""

    async def claim(
        self,
        connection: Connection_contra,
        owner: str,
        lanes: Mapping[int, int],
        limit: int,
        now: datetime | None,
        doubtful: Collection[int] = (),
        alone: bool = False,
    ) -> Sequence[Claim]: ...


class SqlOutbox(Part[AConnection], ABC):
    """The part of `postroom.contracts.outbox` that every server does alike; a database adds how messages are written, how
    claims are fenced, and how commits are watched."""

    def __init__(
        self,
        connections: Connections[AConnection],
        statements: Statements[AConnection],
        verdicts: Verdicts[AConnection],
        claiming: Claiming[AConnection],
    ) -> None:
        super().__init__(connections, statements)
        self._verdicts, self._claiming = verdicts, claiming

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[OwnTransaction]:
        async with self.connections.transaction() as connection, handle_of(partial(self._write, connection)) as handle:
            yield handle

    @in_transaction
    async def put(self, connection: AConnection, messages: Sequence[Message]) -> None:
        await self._write(connection, messages, self.connections.tables)

    @in_transaction
    async def claim(
        self,
        connection: AConnection,
        owner: str,
        lanes: Mapping[int, int],
        *,
        limit: int,
        doubtful: Collection[int] = (),
        alone: bool = False,
        now: datetime | None = None,
    ) -> Sequence[Claim]:
        return await self._claiming.claim(connection, owner, lanes, limit, now, doubtful, alone)

    @in_transaction
    async def settle(
        self, connection: AConnection, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> Mapping[int, Settled]:
        whole = {settlement.claim.id for settlement in settlements if settlement.is_published}
        fenced = await self._fence(connection, settlements, whole, now)
        verdicts: dict[int, Verdict] = {}
        keys: set[str] = set()
        answers: dict[int, Settled] = {}
        for settlement in settlements:
            claim = settlement.claim
            if claim.id not in fenced:
                answers[claim.id] = await self._why(connection, claim)
                continue
            answers[claim.id] = "settled"
            keys |= claim.held
            if claim.id not in whole:
                verdicts |= settlement.own_verdicts
                keys |= settlement.stopped_keys
        await self._verdicts.record(connection, verdicts, now)
        await self._verdicts.look_after(connection, keys)
        return answers

    @single_statement
    async def peek(self, connection: AConnection, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        ((found,),) = await self._rows(connection, "peek", lanes=self._many(lanes), now=self._at(now))
        return bool(found)

    @abstractmethod
    async def _write(self, connection: AConnection, messages: Sequence[Message], tables: TableNames) -> None:
        """Write messages in the transaction of this connection."""

    @abstractmethod
    async def _fence(
        self, connection: AConnection, settlements: Sequence[Settlement], whole: Collection[int], now: datetime | None
    ) -> Container[int]:
        """Delete the claims of these settlements, and settle every message of those that are published as a *whole*.

        Return the ids of the claims that were there (R20)."""

    async def _why(self, connection: AConnection, claim: Claim) -> Settled:
        mine = await self._rows(connection, "is_mine", lane=claim.lane, epoch=claim.epoch)
        return "already" if mine else "lost"
