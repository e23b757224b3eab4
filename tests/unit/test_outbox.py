"""What `put` refuses before it comes to a database, and how it says so."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa

from postroom.config.values import Limits, TableNames
from postroom.errors import DuplicateMessage, InvalidMessage, NotInTransaction, PostroomError, UnknownHandle
from postroom.events import Event, Listeners, MessagesPut
from postroom.handles import handle_for
from postroom.handles.django import django
from postroom.handles.sqlalchemy import write
from postroom.message import Message
from postroom.outbox.outbox import Outbox

PAID = Message("order.paid", key="o-1")
outbox = Outbox()


class Tray:
    """A handle of its own kind, as the memory store's transaction is."""

    def __init__(self, *, shut: bool = False) -> None:
        self.shut = shut
        self.written: list[Message] = []

    def postroom_handle(self) -> Tray:
        return self

    def check(self) -> None:
        if self.shut:
            raise NotInTransaction("The tray is shut: open it first.")

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        self.written += messages


class AsyncTray:
    """The same, awaited."""

    def __init__(self) -> None:
        self.written: list[Message] = []

    def postroom_handle(self) -> AsyncTray:
        return self

    def check(self) -> None:
        pass

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        self.written += messages


def refusal(handle: Any) -> str:
    with pytest.raises(UnknownHandle) as refused:
        outbox.put(handle, PAID)
    return str(refused.value)


def test_a_thing_that_brings_its_own_handle_is_taken() -> None:
    tray = Tray()
    outbox.put(tray, PAID)
    assert tray.written == [PAID]


async def test_an_async_one_is_awaited() -> None:
    tray = AsyncTray()
    await outbox.put(tray, PAID)
    assert tray.written == [PAID]


def test_an_unknown_thing_is_named_with_what_is_accepted() -> None:
    said = refusal(object())
    assert said.startswith("put cannot write with a builtins.object: give a connection of sqlite3, ")
    assert "SQLAlchemy" in said


def test_a_url_is_refused_without_repeating_its_password() -> None:
    said = refusal("postgresql://u:secret@host/db")
    assert "secret" not in said
    assert "give the connection that your data is written with" in said


def test_an_engine_a_maker_and_a_pool_have_their_own_hints() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    assert "`with engine.begin() as connection:`" in refusal(engine)
    assert "`with Session.begin() as session:`" in refusal(orm.sessionmaker(engine))
    assert "not the pool" in refusal(engine.pool)
    engine.dispose()


def test_the_async_ones_have_them_too() -> None:
    engine = sa.create_async_engine("sqlite+aiosqlite://")
    assert "in a transaction" in refusal(engine)
    assert "in a transaction" in refusal(sa.async_sessionmaker(engine))


def test_a_cursor_says_to_give_its_connection() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        assert "give the connection, not its cursor" in refusal(connection.cursor())


@pytest.mark.parametrize("kind", ["ConnectionPool", "AsyncConnectionPool"])
def test_a_pool_of_psycopg_says_to_take_a_connection(kind: str) -> None:
    import psycopg_pool

    pool_class = getattr(psycopg_pool, kind)
    assert "not the pool" in refusal(pool_class.__new__(pool_class))


def test_djangos_transaction_is_no_handle() -> None:
    from django.db import connections, transaction

    assert refusal(transaction) == "put cannot write with the module django.db.transaction: give django.db.connection."
    assert "not atomic()" in refusal(transaction.atomic())
    assert 'connections["default"]' in refusal(connections)


def test_swapped_arguments_are_told() -> None:
    swapped: Any = outbox.put
    with pytest.raises(UnknownHandle, match="the handle comes first"):
        swapped(PAID, PAID)
    with pytest.raises(PostroomError):
        swapped(PAID, Tray())


def test_a_class_is_not_its_object() -> None:
    assert "give an object of it" in refusal(sqlite3.Connection)


def test_none_is_named() -> None:
    assert refusal(None).startswith("put cannot write with None: give ")


def test_a_database_that_we_do_not_speak_is_named() -> None:
    class Dialect:
        name, driver = "oracle", "oracledb"

    class Connection:
        dialect, vendor = Dialect, "oracle"

    oracle: Any = Connection()
    with pytest.raises(UnknownHandle, match="connected to oracle here; Postroom writes to sqlite, postgresql, mysql"):
        write(oracle, [PAID], TableNames())
    with pytest.raises(UnknownHandle, match="connected to oracle here"):
        django(oracle)


def test_put_takes_one_and_put_many_several() -> None:
    tray: Any = Tray()
    wrong: Any = [PAID]
    with pytest.raises(InvalidMessage, match="put takes one Message, not a list: for several there is put_many"):
        outbox.put(tray, wrong)
    single: Any = PAID
    with pytest.raises(InvalidMessage, match="put_many takes several messages, not a Message: for one there is put"):
        outbox.put_many(tray, single)
    mixed: Any = [PAID, "order.paid"]
    with pytest.raises(InvalidMessage, match="one of them is a str"):
        outbox.put_many(tray, mixed)
    with pytest.raises(InvalidMessage, match="not None"):
        outbox.put(tray, None)  # type: ignore[call-overload]  # a mistake people make
    assert tray.written == []


@pytest.mark.parametrize("twin", [PAID, Message("a", id=PAID.id)])
def test_two_messages_with_one_id_are_refused_together(twin: Message) -> None:
    tray = Tray()
    with pytest.raises(DuplicateMessage, match=str(PAID.id)):
        outbox.put_many(tray, [PAID, twin])
    assert tray.written == []


def test_two_messages_with_one_idempotency_key_are_refused_together() -> None:
    tray = Tray()
    with pytest.raises(DuplicateMessage, match="idempotency key pay-1"):
        outbox.put_many(tray, [Message("a", idempotency_key="pay-1"), Message("b", idempotency_key="pay-1")])
    assert tray.written == []


def test_the_limits_are_those_of_the_outbox() -> None:
    tray = Tray()
    with pytest.raises(InvalidMessage, match="the limit is 2"):
        Outbox(limits=Limits(body=2)).put(tray, Message("a", data="abc"))
    assert tray.written == []


def test_the_handle_is_checked_also_for_none_at_all() -> None:
    with pytest.raises(NotInTransaction):
        outbox.put_many(Tray(shut=True), [])


async def test_listeners_hear_of_what_was_written() -> None:
    heard: list[Event] = []
    telling = Outbox(listeners=Listeners(heard.append))
    telling.put_many(Tray(), [PAID, Message("b")])
    await telling.put(AsyncTray(), PAID)
    with pytest.raises(NotInTransaction):
        telling.put(Tray(shut=True), PAID)
    assert heard == [MessagesPut(count=2), MessagesPut(count=1)]


def test_the_same_handle_is_found_for_a_subclass() -> None:
    class Mine(sqlite3.Connection):
        pass

    with contextlib.closing(sqlite3.connect(":memory:", factory=Mine)) as connection:
        assert type(handle_for(connection)).__name__ == "SqliteHandle"
