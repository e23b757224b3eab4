"""A `put` whose `await` was forgotten writes nothing: where the session can tell, it does not commit without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.ext import asyncio as sa
from tests.conformance.handles.databases import Sight
from tests.conformance.handles.held import Held, sqlalchemy_async

from postroom.errors import NotAwaited
from postroom.message import Message
from postroom.outbox.outbox import Outbox

PAID = Message("order.paid", key="o-1", data={"amount": 12})
ORDER = "INSERT INTO orders (id) VALUES (1)"
outbox = Outbox()


@pytest.fixture(params=["AsyncSession", "async_scoped_session", "AsyncConnection"])
async def held(request: pytest.FixtureRequest, sqlite: Sight) -> AsyncIterator[Held]:
    async with sqlalchemy_async("aiosqlite", request.param)(sqlite.url) as held:
        yield held
        await held.rollback()


async def test_a_commit_with_a_put_that_nobody_awaited_is_refused(held: Held, sqlite: Sight) -> None:
    await held.begin()
    await held.run(ORDER)
    await outbox.put(held.thing, PAID)
    forgotten: Any = outbox.put(held.thing, Message("order.sent"))
    with pytest.raises(NotAwaited, match=r"never awaited.*await outbox\.put"):
        await held.commit()
    forgotten.close()  # as if it had been collected; Python would warn of it
    await held.rollback()
    assert sqlite.counts() == (0, 0)


async def test_after_the_rollback_the_next_transaction_is_free_of_it(held: Held, sqlite: Sight) -> None:
    await held.begin()
    forgotten: Any = outbox.put(held.thing, PAID)
    await held.rollback()
    forgotten.close()
    await held.begin()
    await held.run(ORDER)
    await outbox.put(held.thing, PAID)
    await held.commit()
    assert sqlite.counts() == (1, 1)


async def test_a_put_that_is_awaited_later_is_as_good_as_one_awaited_at_once(held: Held, sqlite: Sight) -> None:
    await held.begin()
    puts: list[Any] = [outbox.put(held.thing, Message(f"n.{number}")) for number in range(3)]
    for put in puts:
        await put
    await held.commit()
    assert sqlite.counts() == (0, 3)


async def test_a_block_that_commits_rolls_back_instead(sqlite: Sight) -> None:
    engine = sa.create_async_engine(sqlite.url.replace("://", "+aiosqlite://"))
    forgotten: list[Any] = []

    async def by_session() -> None:
        async with sa.AsyncSession(engine) as session, session.begin():
            await (await session.connection()).exec_driver_sql(ORDER)
            forgotten.append(outbox.put(session, PAID))

    async def by_connection() -> None:
        async with engine.begin() as connection:
            await connection.exec_driver_sql(ORDER)
            forgotten.append(outbox.put_many(connection, [PAID]))

    for pay in (by_session, by_connection):
        with pytest.raises(NotAwaited):
            await pay()
    for each in forgotten:
        each.close()
    assert sqlite.counts() == (0, 0)
    async with engine.begin() as connection:  # and the engine is as good as before
        await outbox.put(connection, PAID)
    await engine.dispose()
    assert sqlite.counts() == (0, 1)


async def test_a_forgotten_put_on_the_connection_of_a_session_is_found_too(sqlite: Sight) -> None:
    engine = sa.create_async_engine(sqlite.url.replace("://", "+aiosqlite://"))
    async with sa.AsyncSession(engine) as session:
        connection = await session.connection()
        await connection.exec_driver_sql(ORDER)
        forgotten: Any = outbox.put(connection, PAID)
        with pytest.raises(NotAwaited):
            await session.commit()
        forgotten.close()
    await engine.dispose()
    assert sqlite.counts() == (0, 0)
