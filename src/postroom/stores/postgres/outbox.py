"""Messages on their way out: put, claim, settle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from postroom.config.tables import TableNames
from postroom.contracts.outbox import Settlement
from postroom.handles.psycopg import AsyncPsycopgHandle
from postroom.message import Message
from postroom.stores.postgres.claim import Claiming
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.postgres.settle import Verdicts
from postroom.stores.postgres.statements import Statements
from postroom.stores.postgres.watch import watch
from postroom.stores.sql.outbox import SqlOutbox


class PostgresOutbox(SqlOutbox[Connection]):
    """See `postroom.contracts.outbox` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        verdicts = Verdicts(statements)
        super().__init__(connections, statements, verdicts, Claiming(statements, verdicts))
        self._url = connections.url

    async def watch(self, woken: Callable[[], None]) -> None:
        await watch(self._url, self.connections.tables, woken)

    async def _write(self, connection: Connection, messages: Sequence[Message], tables: TableNames) -> None:
        await AsyncPsycopgHandle(connection).write(messages, tables)

    async def _fence(
        self, connection: Connection, settlements: Sequence[Settlement], whole: Collection[int], now: datetime | None
    ) -> set[int]:
        ids = [settlement.claim.id for settlement in settlements]
        rows = await self._rows(connection, "fence", ids=ids, whole=list(whole), now=now)
        return {claim_id for (claim_id,) in rows}
