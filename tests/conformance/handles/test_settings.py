"""Handles as people set them up: what their settings would break stays whole."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import Column, Integer, create_engine, orm
from tests.conformance.handles.databases import Sight
from tests.conformance.handles.held import django_connection, path_of

from postroom.errors import NotInTransaction, StoreError, UnknownHandle
from postroom.message import Message
from postroom.outbox.outbox import Outbox

PAID = Message("order.paid", key="o-1", data={"amount": 12})
outbox = Outbox()


class Base(orm.DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)


class Mine(sqlite3.Connection):
    """A subclass, as some frameworks make one."""


def test_a_subclass_of_a_known_connection_is_known(sqlite: Sight) -> None:
    with contextlib.closing(sqlite3.connect(path_of(sqlite.url), factory=Mine)) as connection:
        connection.execute("BEGIN")
        outbox.put(connection, PAID)
        connection.commit()
    assert sqlite.counts() == (0, 1)


def test_with_connection_alone_begins_nothing_and_the_refusal_names_both_ways(sqlite: Sight) -> None:
    both = r'run connection\.execute\("BEGIN IMMEDIATE"\) first, or write your data first.*not at `with connection:`'
    with contextlib.closing(sqlite3.connect(path_of(sqlite.url))) as connection:
        with pytest.raises(NotInTransaction, match=both), connection:
            outbox.put(connection, PAID)
        connection.isolation_level = None  # then there is one way only
        with pytest.raises(NotInTransaction, match=r'"BEGIN IMMEDIATE"\) first\.$'), connection:
            outbox.put(connection, PAID)
    assert sqlite.counts() == (0, 0)


def test_a_begin_of_the_drivers_own_counts(sqlite: Sight) -> None:
    with contextlib.closing(sqlite3.connect(path_of(sqlite.url))) as connection:
        with pytest.raises(NotInTransaction):
            outbox.put(connection, PAID)
        connection.execute("INSERT INTO orders (id) VALUES (1)")
        outbox.put(connection, PAID)
        connection.commit()
    assert sqlite.counts() == (1, 1)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit attribute before Python 3.12")
@pytest.mark.parametrize("autocommit", [False, True])
def test_the_autocommit_attribute_of_sqlite3_is_seen(sqlite: Sight, autocommit: bool) -> None:
    mode: dict[str, Any] = {"autocommit": autocommit}
    engine = create_engine(sqlite.url, connect_args=mode)
    with contextlib.closing(sqlite3.connect(path_of(sqlite.url), **mode)) as connection, orm.Session(engine) as session:
        session.begin()
        for handle in (connection, session):
            with pytest.raises(NotInTransaction) if autocommit else contextlib.nullcontext():
                outbox.put(handle, Message("order.paid"))
            handle.commit()
    engine.dispose()
    assert sqlite.counts() == (0, 0 if autocommit else 2)


def test_rows_as_objects_change_nothing(sqlite: Sight) -> None:
    with contextlib.closing(sqlite3.connect(path_of(sqlite.url))) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        outbox.put_many(connection, [PAID, Message("order.sent")])
        connection.commit()
    assert sqlite.counts() == (0, 2)


def test_psycopg_with_autocommit_and_a_block_is_in_a_transaction(postgres: Sight) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        with pytest.raises(NotInTransaction):
            outbox.put(connection, PAID)
        with connection.transaction():
            outbox.put(connection, PAID)
    assert postgres.counts() == (0, 1)


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor, psycopg.Cursor])
def test_a_cursor_factory_with_other_parameters_changes_nothing(postgres: Sight, factory: Any) -> None:
    with psycopg.connect(postgres.url, cursor_factory=factory, row_factory=psycopg.rows.dict_row) as connection:
        connection.execute("INSERT INTO orders (id) VALUES (1)")
        outbox.put(connection, PAID)
    assert postgres.counts() == (1, 1)


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_pipeline_of_psycopg_changes_nothing(postgres: Sight, autocommit: bool) -> None:
    connecting = psycopg.connect(postgres.url, autocommit=autocommit)
    with connecting as connection, connection.pipeline(), connection.transaction():
        outbox.put_many(connection, [Message(f"n.{number}") for number in range(1_001)])
    assert postgres.counts() == (0, 1_001)


def test_in_a_pipeline_with_autocommit_only_a_block_is_a_transaction(postgres: Sight) -> None:
    """Meanwhile the driver does not know what the server will say: the status it has is an old one."""
    with psycopg.connect(postgres.url, autocommit=True) as connection, connection.pipeline() as pipeline:
        connection.execute("SELECT 1")
        with pytest.raises(NotInTransaction, match=r"pipeline.*`with connection\.transaction\(\):`"):
            outbox.put(connection, PAID)
        pipeline.sync()
        with pytest.raises(NotInTransaction):
            outbox.put(connection, PAID)
        with connection.transaction():
            connection.execute("INSERT INTO orders (id) VALUES (1)")
            outbox.put(connection, PAID)
        connection.execute("SELECT 1")
        with pytest.raises(NotInTransaction):
            outbox.put(connection, Message("order.sent"))
    assert postgres.counts() == (1, 1)


async def test_in_an_async_pipeline_with_autocommit_only_a_block_is_a_transaction(postgres: Sight) -> None:
    connecting = await psycopg.AsyncConnection.connect(postgres.url, autocommit=True)
    async with connecting as connection, connection.pipeline():
        await connection.execute("SELECT 1")
        with pytest.raises(NotInTransaction, match=r"pipeline.*`async with connection\.transaction\(\):`"):
            await outbox.put(connection, PAID)
        async with connection.transaction():
            await connection.execute("INSERT INTO orders (id) VALUES (1)")
            await outbox.put(connection, PAID)
            late = outbox.put(connection, Message("order.late"))
        await connection.execute("SELECT 1")
        with pytest.raises(NotInTransaction):
            await late
    assert postgres.counts() == (1, 1)


def test_a_pipeline_without_autocommit_commits_and_rolls_back(postgres: Sight) -> None:
    with psycopg.connect(postgres.url) as connection, connection.pipeline():
        connection.execute("INSERT INTO orders (id) VALUES (1)")
        outbox.put(connection, PAID)
        connection.rollback()
        with pytest.raises(NotInTransaction):
            outbox.put(connection, PAID)
        connection.execute("INSERT INTO orders (id) VALUES (2)")
        outbox.put(connection, PAID)
        connection.commit()
    assert postgres.counts() == (1, 1)


async def test_a_json_codec_on_asyncpg_changes_nothing(postgres: Sight) -> None:
    import json

    connection = await asyncpg.connect(postgres.url)
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    async with connection.transaction():
        await outbox.put(connection, PAID)
    await connection.close()
    assert postgres.counts() == (0, 1)


async def test_a_prepared_statement_cache_turned_off_changes_nothing(postgres: Sight) -> None:
    connection = await asyncpg.connect(postgres.url, statement_cache_size=0)
    async with connection.transaction():
        await outbox.put(connection, PAID)
    await connection.close()
    assert postgres.counts() == (0, 1)


@pytest.mark.parametrize("style", ["named", "qmark"])
def test_another_paramstyle_of_the_engine_changes_nothing(sqlite: Sight, style: Any) -> None:
    engine = create_engine(sqlite.url, paramstyle=style)
    with engine.begin() as connection:
        outbox.put_many(connection, [PAID, Message("order.sent")])
    engine.dispose()
    assert sqlite.counts() == (0, 2)


def test_put_flushes_nothing(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url)
    with orm.Session(engine) as session:
        order = Order(id=1)
        session.add(order)
        outbox.put(session, PAID)
        assert order in session.new
        session.commit()
    engine.dispose()
    assert sqlite.counts() == (1, 1)


def test_a_nested_session_transaction_rolled_back_takes_its_message(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url)
    with orm.Session(engine) as session, session.begin():
        outbox.put(session, PAID)
        nested = session.begin_nested()
        outbox.put(session, Message("order.sent"))
        nested.rollback()
    engine.dispose()
    assert sqlite.rows("SELECT type FROM outbox") == [("order.paid",)]


def test_a_session_of_several_engines_takes_its_connection(sqlite: Sight) -> None:
    engine = create_engine(sqlite.url)
    with orm.Session(binds={Order: engine}) as session, session.begin():
        session.add(Order(id=1))
        outbox.put(session.connection(bind_arguments={"mapper": Order}), PAID)
    engine.dispose()
    assert sqlite.counts() == (1, 1)


def test_autocommit_on_one_connection_alone_is_refused(postgres: Sight) -> None:
    engine = create_engine(postgres.url.replace("://", "+psycopg://"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.begin()
        with pytest.raises(NotInTransaction, match="AUTOCOMMIT"):
            outbox.put(connection, PAID)
    engine.dispose()
    assert postgres.counts() == (0, 0)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_django_with_autocommit_off_is_in_a_transaction(request: pytest.FixtureRequest, database: str) -> None:
    sight: Sight = request.getfixturevalue(database)
    async with django_connection(proxy=True)(sight.url) as held:
        held.thing.set_autocommit(False)
        outbox.put(held.thing, PAID)
        assert sight.counts() == (0, 0)
        held.thing.commit()
    assert sight.counts() == (0, 1)


async def test_the_debug_cursor_of_django_changes_nothing(sqlite: Sight) -> None:
    async with django_connection(proxy=True)(sqlite.url) as held:
        await held.begin()
        held.thing.force_debug_cursor = True
        outbox.put_many(held.thing, [PAID, Message("order.sent")])
        await held.commit()
    assert sqlite.counts() == (0, 2)


async def test_the_cache_of_django_is_no_database(sqlite: Sight) -> None:
    async with django_connection(proxy=True)(sqlite.url):
        from django.core.cache import cache

        with pytest.raises(UnknownHandle, match=r"not a database: give django\.db\.connection"):
            outbox.put(cache, PAID)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_connection_that_cannot_carry_the_text_says_so(postgres: Sight, driver: str) -> None:
    module = pytest.importorskip(driver)
    with contextlib.closing(module.connect(postgres.url)) as connection:
        connection.cursor().execute("SET client_encoding TO 'LATIN1'")
        if driver == "psycopg2":
            connection.set_client_encoding("LATIN1")
            connection.cursor().execute("SELECT 1")
        with pytest.raises(StoreError, match="UTF8") as caught:
            outbox.put(connection, PAID.replace(key="ключ"))
        assert "ключ" not in str(caught.value)
        connection.rollback()
    assert postgres.counts() == (0, 0)
