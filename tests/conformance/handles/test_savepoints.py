"""A savepoint on SQLite that nobody began a transaction before: its end commits, whatever the handle believes.

Python's sqlite3 runs no BEGIN before a SAVEPOINT, so the savepoint is the whole transaction (https://sqlite.org/lang_savepoint.html).
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from typing import Any

import pytest
from sqlalchemy import create_engine, event, orm
from sqlalchemy.ext import asyncio as sa
from tests.conformance.handles.databases import Sight
from tests.conformance.handles.held import django_connection, path_of, sqlalchemy_sync

from postroom.errors import NotInTransaction
from postroom.message import Message
from postroom.outbox.outbox import Outbox

PAID = Message("order.paid", key="o-1", data={"amount": 12})
ORDER = "INSERT INTO orders (id) VALUES (1)"
outbox = Outbox()


def test_a_put_in_a_savepoint_that_begins_the_transaction_of_a_session_is_refused(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url)
    with orm.Session(engine) as session:
        refused = pytest.raises(NotInTransaction, match=r"SAVEPOINT.*autocommit.*put before the savepoint")
        with refused, session.begin_nested():
            outbox.put(session, PAID)
        session.rollback()
    engine.dispose()
    assert sqlite.counts() == (0, 0)


async def test_a_put_in_such_a_savepoint_of_an_async_session_is_refused(sqlite: Sight) -> None:
    engine = sa.create_async_engine(sqlite.url.replace("://", "+aiosqlite://"))
    async with sa.AsyncSession(engine) as session:
        with pytest.raises(NotInTransaction, match="SAVEPOINT"):
            async with session.begin_nested():
                await outbox.put(session, PAID)
        await session.rollback()
    async with engine.connect() as connection:
        with pytest.raises(NotInTransaction, match="SAVEPOINT"):
            async with connection.begin_nested():
                await outbox.put(connection, PAID)
        await connection.rollback()
    await engine.dispose()
    assert sqlite.counts() == (0, 0)


def test_a_session_that_joins_by_savepoints_is_refused(sqlite: Sight) -> None:
    """As people set up their tests: everything that the session commits is to be rolled back by the connection."""
    engine = create_engine(sqlite.url)
    with engine.connect() as connection:
        connection.begin()
        with orm.Session(connection, join_transaction_mode="create_savepoint") as session:
            session.begin()
            with pytest.raises(NotInTransaction, match="SAVEPOINT"):
                outbox.put(session, PAID)
            session.commit()
        connection.rollback()
    engine.dispose()
    assert sqlite.counts() == (0, 0)


@pytest.mark.parametrize("options", [{"isolation_level": "AUTOCOMMIT"}, {"connect_args": {"isolation_level": None}}])
def test_a_savepoint_is_no_transaction_where_the_driver_begins_none(sqlite: Sight, options: Any) -> None:
    engine = create_engine(sqlite.url, **options)
    with engine.connect() as connection:
        with pytest.raises(NotInTransaction), connection.begin_nested():
            outbox.put(connection, PAID)
        connection.rollback()
    engine.dispose()
    assert sqlite.counts() == (0, 0)


async def test_sqlalchemys_recipe_for_savepoints_is_taken(sqlite: Sight) -> None:
    async with sqlalchemy_sync("pysqlite", "begun")(sqlite.url) as held:
        with held.thing.begin_nested():
            outbox.put(held.thing, PAID)
        assert sqlite.counts() == (0, 0)
        held.thing.rollback()
        assert sqlite.counts() == (0, 0)
        with held.thing.begin_nested():
            outbox.put(held.thing, PAID)
        held.thing.commit()
    assert sqlite.counts() == (0, 1)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit attribute before Python 3.12")
def test_the_autocommit_attribute_turned_off_makes_savepoints_right(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url, connect_args={"autocommit": False})
    with orm.Session(engine) as session:
        with session.begin_nested():
            outbox.put(session, PAID)
        session.rollback()
        assert sqlite.counts() == (0, 0)
        with session.begin_nested():
            outbox.put(session, PAID)
        session.commit()
    engine.dispose()
    assert sqlite.counts() == (0, 1)


def test_a_put_before_the_savepoint_begins_the_transaction_for_those_in_it(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url)
    with orm.Session(engine) as session:
        for _ in range(2):
            session.begin()
            outbox.put(session, PAID)
            with session.begin_nested():
                outbox.put(session, Message("order.sent"))
            session.rollback()
        session.begin()
        with pytest.raises(NotInTransaction, match="SAVEPOINT"), session.begin_nested():
            outbox.put(session, PAID)  # what was known of an earlier transaction says nothing of this one
        session.rollback()
    engine.dispose()
    assert sqlite.counts() == (0, 0)


def test_a_put_of_nothing_begins_no_transaction(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url)
    with orm.Session(engine) as session:
        session.begin()
        outbox.put_many(session, [])
        with pytest.raises(NotInTransaction, match="SAVEPOINT"), session.begin_nested():
            outbox.put(session, PAID)
        session.rollback()
    engine.dispose()
    assert sqlite.counts() == (0, 0)


@pytest.mark.parametrize("level", ["", "IMMEDIATE"])
def test_the_savepoint_around_many_is_not_the_whole_transaction(sqlite: Sight, level: str) -> None:
    engine = create_engine(sqlite.url, connect_args={"isolation_level": level})
    with orm.Session(engine) as session:
        session.begin()
        outbox.put_many(session, [PAID, Message("order.sent")])
        assert sqlite.counts() == (0, 0)
        session.rollback()
    engine.dispose()
    assert sqlite.counts() == (0, 0)


async def test_nor_is_it_in_django_with_autocommit_off(sqlite: Sight) -> None:
    async with django_connection(proxy=True)(sqlite.url) as held:
        held.thing.set_autocommit(False)
        outbox.put_many(held.thing, [PAID, Message("order.sent")])
        assert sqlite.counts() == (0, 0)
        held.thing.rollback()
    assert sqlite.counts() == (0, 0)


def test_another_listener_does_not_make_savepoints_right(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url)
    event.listen(engine, "begin", lambda connection: None)  # somebody counts transactions
    with engine.connect() as connection:
        with pytest.raises(NotInTransaction, match="SAVEPOINT"), connection.begin_nested():
            outbox.put(connection, PAID)
        connection.rollback()
    engine.dispose()
    assert sqlite.counts() == (0, 0)


async def test_django_with_autocommit_off_is_refused_in_a_savepoint(sqlite: Sight) -> None:
    from django.db.transaction import atomic

    async with django_connection(proxy=True)(sqlite.url) as held:
        held.thing.set_autocommit(False)
        with pytest.raises(NotInTransaction, match=r"SAVEPOINT.*set_autocommit\(True\)"), atomic():
            outbox.put(held.thing, PAID)
        held.thing.rollback()
    assert sqlite.counts() == (0, 0)


async def test_a_savepoint_inside_djangos_atomic_is_taken(sqlite: Sight) -> None:
    from django.db.transaction import atomic

    async with django_connection(proxy=True)(sqlite.url) as held:
        with contextlib.suppress(ZeroDivisionError), atomic():
            with atomic():
                outbox.put(held.thing, PAID)
            raise ZeroDivisionError
        assert sqlite.counts() == (0, 0)
        with atomic(), atomic():
            outbox.put(held.thing, PAID)
    assert sqlite.counts() == (0, 1)


def test_a_savepoint_that_begins_a_plain_connections_transaction_ends_it_for_data_and_message_alike(
    sqlite: Sight,
) -> None:
    """Nothing else was promised here: to SQLite such a savepoint is the transaction, and nobody can tell it from a BEGIN."""
    with contextlib.closing(sqlite3.connect(path_of(sqlite.url))) as connection:
        connection.execute("SAVEPOINT here")
        connection.execute(ORDER)
        outbox.put(connection, PAID)
        connection.rollback()
        assert sqlite.counts() == (0, 0)
        connection.execute("SAVEPOINT here")
        connection.execute(ORDER)
        outbox.put(connection, PAID)
        connection.execute("RELEASE here")
    assert sqlite.counts() == (1, 1)
