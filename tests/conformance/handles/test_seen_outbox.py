"""What a test sees with the handle it holds: also what is not committed, as it was put; and it leaves no trace."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import class_row
from pymongo import AsyncMongoClient, MongoClient
from tests.conformance.handles.databases import PICKY, Sight
from tests.conformance.handles.held import ON_MARIADB, ON_POSTGRES, ON_SQLITE, Held, done
from tests.conformance.handles.test_every_handle import BODIES

from postroom.config.tables import TableNames
from postroom.errors import SchemaMismatch
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.stores import open_store
from postroom.testing.outbox import SeenOutbox

WHEN = datetime(2026, 11, 15, 9, 30, 0, 250_001, tzinfo=UTC)
FULL = Message(
    "order.paid",
    key="Grüße, 世界 🌍 %s",
    data={"amount": 12},
    time=WHEN,
    aggregate="order",
    topic="orders",
    headers={"x-quoted": 'it\'s "so" 🌍'},
    correlation_id="c",
    causation_id="d",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    idempotency_key="once",
    expires_at=WHEN.replace(year=2030),
)
PUT = [
    FULL,
    *(Message("raw", body=body, content_type="text/plain", traceparent=FULL.traceparent) for body in BODIES.values()),
]


@pytest.fixture
def others(request: pytest.FixtureRequest) -> Sight:
    name = request.node.callspec.params["name"]
    database = "mariadb" if name in ON_MARIADB else "sqlite" if name in ON_SQLITE else "postgres"
    return request.getfixturevalue(database)  # type: ignore[no-any-return]  # all are


@pytest.fixture
async def held(others: Sight, name: str) -> AsyncIterator[Held]:
    async with (ON_SQLITE | ON_POSTGRES | ON_MARIADB)[name](others.url) as held:
        yield held
        await held.rollback()


@pytest.mark.parametrize("name", [*ON_SQLITE, *ON_POSTGRES, *ON_MARIADB])
class TestEveryHandle:
    async def test_what_is_put_is_seen_before_it_is_committed_and_gone_after_a_roll_back(
        self, held: Held, others: Sight
    ) -> None:
        seen = SeenOutbox(held.thing)
        await held.begin()
        await done(Outbox().put_many(held.thing, PUT))
        assert await seen.messages() == PUT
        assert others.counts() == (0, 0)
        await held.rollback()
        assert await seen.messages() == []

    async def test_looking_begins_and_ends_no_transaction_of_the_test(self, held: Held, others: Sight) -> None:
        seen = SeenOutbox(held.thing)
        assert await seen.messages() == []
        await held.begin()
        await done(Outbox().put(held.thing, FULL))
        await seen.assert_put("order.paid")
        await held.commit()
        assert others.counts() == (0, 1)
        assert await seen.messages() == [FULL]
        # And where nobody had begun, others' commits are seen, at once and each time.
        others.rows("DELETE FROM outbox RETURNING seq")
        assert await seen.messages() == []

    async def test_other_tables_are_named_and_missing_ones_are_told(self, held: Held, others: Sight) -> None:
        await held.begin()
        await done(Outbox(tables=PICKY).put(held.thing, FULL))
        assert await SeenOutbox(held.thing, PICKY).messages() == [FULL]
        assert await SeenOutbox(held.thing).messages() == []
        await held.rollback()
        with pytest.raises(SchemaMismatch):
            await SeenOutbox(held.thing, TableNames(prefix="nobody")).messages()
        # And after that the handle is as good as before.
        await held.begin()
        await done(Outbox().put(held.thing, FULL))
        assert await SeenOutbox(held.thing).messages() == [FULL]


async def test_rows_that_a_connection_makes_into_something_else_are_read_all_the_same(
    sqlite: Sight, postgres: Sight
) -> None:
    with closing(sqlite3.connect(sqlite.url.removeprefix("sqlite:///"), isolation_level=None)) as shop:
        shop.row_factory = lambda cursor, row: dict(zip([each[0] for each in cursor.description], row, strict=True))
        shop.execute("BEGIN")
        Outbox().put(shop, FULL)
        assert await SeenOutbox(shop).messages() == [FULL]
    with psycopg.connect(postgres.url, row_factory=class_row(Order)) as orders:
        orders.execute("SELECT 1")
        Outbox().put(orders, FULL)
        assert await SeenOutbox(orders).messages() == [FULL]
        orders.rollback()


@dataclass
class Order:
    """What somebody's connection makes of every row."""

    number: int


async def test_a_session_of_mongodb_sees_its_own_transaction(mongo_database: str) -> None:
    async with open_store(mongo_database) as store:
        await store.schema.migrate()
    with MongoClient[dict[str, Any]](mongo_database) as client, client.start_session() as session:
        session.start_transaction()
        Outbox().put_many(session, PUT)
        assert [each.id for each in await SeenOutbox(session).messages()] == [each.id for each in PUT]
        assert await SeenOutbox(session).messages("raw") == PUT[1:]
        assert await SeenOutbox(client.get_default_database()).messages() == []
        session.abort_transaction()
        assert await SeenOutbox(session).messages() == []


async def test_an_async_session_of_mongodb_does_too(mongo_database: str) -> None:
    async with open_store(mongo_database) as store:
        await store.schema.migrate()
    async with AsyncMongoClient[dict[str, Any]](mongo_database) as client, client.start_session() as session:
        async with await session.start_transaction():
            await Outbox().put(session, FULL)
            await SeenOutbox(session).assert_put("order.paid", key=FULL.key, data={"amount": 12})
            assert await SeenOutbox(client.get_default_database()).messages() == []
        await SeenOutbox(client.get_default_database()).assert_put("order.paid")
