"""What a test sees with the handle it holds: also what is not committed, as it was put; and it leaves no trace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.conformance.handles.databases import PICKY, Sight
from tests.conformance.handles.held import ON_MARIADB, ON_POSTGRES, ON_SQLITE, Held, done
from tests.conformance.handles.test_every_handle import BODIES

from postroom.errors import SchemaMismatch
from postroom.message import Message
from postroom.outbox import Outbox
from postroom.tables import TableNames
from postroom.testing.outbox import SeenOutbox

pytestmark = pytest.mark.anyio
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
        with pytest.raises(SchemaMismatch):
            await SeenOutbox(held.thing, TableNames(prefix="nobody")).messages()
