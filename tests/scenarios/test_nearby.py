"""A relay inside the process that commits hears of the commit at once, though its database tells nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import create_engine, orm, text
from sqlalchemy.ext import asyncio as sa
from tests.conformance.handles.held import django_connection
from tests.scenarios.heard import HEARD

from postroom import Message, Outbox, open_store
from postroom.handles import nearby
from postroom.integrations.asgi import relaying
from postroom.relay.wakeup import Backoff

outbox = Outbox()
SOON = 10.0
"""Long enough for a slow machine, and far below the poll of the relay."""


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Is set when a relay that found nothing goes to sleep for a minute; which is after two seconds here."""
    asleep = asyncio.Event()

    def next_(self: Backoff) -> float:
        wait, self._next = self._next, min(1_000 * self._next, self.most)
        self.total += wait
        if wait >= 60:
            asleep.set()
        return wait

    monkeypatch.setattr(Backoff, "next", next_)
    return asleep


@asynccontextmanager
async def a_sleeping_relay(url: str, sleeps: asyncio.Event) -> AsyncIterator[None]:
    async with open_store(url) as store:
        await store.schema.migrate()
    async with relaying(store=url, to="local://tests.scenarios.heard:hear", poll="60s"):
        await asyncio.wait_for(sleeps.wait(), 30)
        yield


async def heard() -> str:
    return await asyncio.to_thread(HEARD.get, True, SOON)


def by_session(url: str) -> None:
    engine = create_engine(with_driver(url, "psycopg", "pymysql"))
    with orm.Session(engine) as session, session.begin():
        outbox.put(session, Message("order.paid"))
    engine.dispose()


def by_connection(url: str) -> None:
    engine = create_engine(with_driver(url, "psycopg", "pymysql"))
    with engine.begin() as connection:
        outbox.put(connection, Message("order.paid"))
    engine.dispose()


async def by_async_session(url: str) -> None:
    engine = sa.create_async_engine(with_driver(url, "asyncpg", "asyncmy"))
    async with sa.AsyncSession(engine) as session, session.begin():
        await outbox.put(session, Message("order.paid"))
    await engine.dispose()


async def by_async_connection(url: str) -> None:
    engine = sa.create_async_engine(with_driver(url, "asyncpg", "asyncmy"))
    async with engine.begin() as connection:
        await outbox.put(connection, Message("order.paid"))
    await engine.dispose()


async def by_django(url: str) -> None:
    from django.db.transaction import atomic

    async with django_connection(proxy=True)(url) as held:
        with atomic(), atomic():
            outbox.put(held.thing, Message("order.paid"))


def with_driver(url: str, postgres: str, mysql: str) -> str:
    return url.replace("://", f"+{postgres if url.startswith('postgres') else mysql}://", 1)


@pytest.mark.parametrize(
    ("database", "pay"),
    [
        ("postgres_database", by_session),
        ("postgres_database", by_connection),
        ("postgres_database", by_async_session),
        ("postgres_database", by_async_connection),
        ("postgres_database", by_django),
        ("mariadb_database", by_async_session),
    ],
)
async def test_a_commit_wakes_a_relay_in_the_same_process(
    database: str,
    pay: Callable[[str], Any],
    sleeps: asyncio.Event,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    url = request.getfixturevalue(database)
    async with a_sleeping_relay(url, sleeps):
        if asyncio.iscoroutinefunction(pay):
            await pay(url)
        else:
            await asyncio.to_thread(pay, url)
        assert await heard() == "order.paid"


class Told:
    """What a relay would be told."""

    def __init__(self) -> None:
        self.times, self.news = 0, asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self.news.set()


async def test_only_a_commit_with_a_message_in_it_is_told(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path / 'shop.db'}"
    async with open_store(store) as opened:
        await opened.schema.migrate()
    engine, told = create_engine(store), Told()
    with nearby.told(told), orm.Session(engine) as session:
        session.execute(text("SELECT 1"))
        session.commit()
        outbox.put(session, Message("gone"))
        session.rollback()
        outbox.put(session, Message("kept"))
        with session.begin_nested():
            outbox.put(session, Message("kept too"))
        await asyncio.sleep(5 * nearby.REST_SECONDS)
        assert told.times == 0
        session.commit()
        await asyncio.wait_for(told.news.wait(), SOON)
        session.execute(text("SELECT 1"))
        session.commit()
        await asyncio.sleep(5 * nearby.REST_SECONDS)
    engine.dispose()
    assert told.times == 1


async def test_many_commits_are_few_hints_and_the_last_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    with nearby.told(told):
        for _ in range(100):
            nearby.tell()
        await asyncio.wait_for(told.news.wait(), SOON)
        assert told.times == 1
        told.news.clear()
        nearby.tell()  # it rests, but this is not lost
        await asyncio.wait_for(told.news.wait(), SOON)
    nearby.tell()
    assert not nearby.is_anyone()


def test_a_relay_whose_loop_is_gone_harms_nobody() -> None:
    async def leave() -> Any:
        block = nearby.told(lambda: None)
        block.__enter__()
        return block

    block = asyncio.run(leave())
    nearby.tell()
    block.__exit__(None, None, None)
    assert not nearby.is_anyone()
