"""`put` writes in the atomic block that is open, and tells the relay once it has committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql
from tests.unit.integrations.django.projects import Project, database

from postroom.config.tables import TableNames
from postroom.stores.postgres.watch import channel

PUT = """
from django.db import connection, transaction
from postroom import Message, NotInTransaction, SchemaMismatch
from postroom.integrations.django import put, put_many
from postroom.integrations.django.models import OutboxMessage
from shop.models import Order

"""
PATIENCE_SECONDS = 30


def test_what_is_put_commits_and_vanishes_with_the_data(project: Project) -> None:
    said = project.python(
        PUT
        + """if True:
        with transaction.atomic():
            Order.objects.create(name="one")
            put(Message("order.placed", key="one", data={"café": "50 %"}))
            put_many([Message("order.packed", key="one"), Message("order.sent", key="one")])
        try:
            with transaction.atomic():
                Order.objects.create(name="two")
                put(Message("order.placed", key="two"))
                raise KeyError
        except KeyError:
            pass
        with transaction.atomic():
            Order.objects.create(name="three")
            try:
                with transaction.atomic():
                    put(Message("order.placed", key="three"))
                    raise KeyError
            except KeyError:
                pass
        print(*Order.objects.order_by("id"))
        for each in OutboxMessage.objects.order_by("seq"):
            print(each.type, each.key, each.status, each.payload, len(str(each.id)), each.parked, each.created_at.tzinfo)
        """
    )
    assert said.splitlines() == [
        "one three",
        'order.placed one pending {"café":"50 %"} 36 False UTC',
        "order.packed one pending None 36 False UTC",
        "order.sent one pending None 36 False UTC",
    ]


def test_without_a_transaction_or_tables_it_refuses_and_says_what_to_do(small: Project) -> None:
    said = small.python(
        PUT
        + """if True:
        try:
            put(Message("order.placed"))
        except NotInTransaction as exc:
            print(exc)
        try:
            with transaction.atomic():
                put(Message("order.placed"))
        except SchemaMismatch as exc:
            print(exc)
        """
    )
    outside, unmade = said.splitlines()
    assert outside == (
        "The Django connection is not in a transaction, so the message would not commit with your data: "
        "put inside `with transaction.atomic():`."
    )
    assert unmade == (
        "The database 'default' has no table outbox that this Postroom can write to: run `manage.py migrate postroom`."
    )


def test_a_message_can_be_neither_changed_nor_deleted_by_its_model(small: Project) -> None:
    small.migrate()
    small.done("postroom", "put", "order.placed")
    said = small.python(
        PUT
        + """if True:
        for act in (OutboxMessage.save, OutboxMessage.delete):
            try:
                act(OutboxMessage.objects.get())
            except TypeError as exc:
                print(exc)
        """
    )
    assert "A message cannot be changed" in said
    assert "A message cannot be deleted" in said


def test_a_relay_is_told_after_the_commit_and_of_nothing_else(postgres_database: str) -> None:
    project = Project.on(postgres_database)
    project.migrate()
    with listening(postgres_database) as hints:
        project.python(PUT + "with transaction.atomic():\n    put(Message('order.placed'))")
        assert next(hints)
        project.python(
            PUT
            + """if True:
            from contextlib import suppress
            with suppress(ZeroDivisionError), transaction.atomic():
                put(Message("order.placed"))
                1 / 0
            """
        )
        project.postroom = {"WAKE": False}
        project.python(PUT + "with transaction.atomic():\n    put(Message('order.placed'))")
        # A hint of our own comes next: none was sent before it.
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute("SELECT pg_notify(%s, 'mine')", [channel(TableNames())])
        assert next(hints) == ["mine"]


@contextmanager
def listening(url: str) -> Iterator[Iterator[list[str]]]:
    """What was said to relays since the last look, as soon as something was."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel(TableNames()))))

        def hints() -> Iterator[list[str]]:
            while True:
                found = [hint.payload for hint in connection.notifies(timeout=PATIENCE_SECONDS, stop_after=1)]
                if not found:
                    pytest.fail("nobody was told")
                yield found

        yield hints()


def test_an_async_view_puts_in_a_thread_and_is_refused_by_django_elsewhere(small: Project) -> None:
    small.migrate()
    said = small.python(
        PUT
        + """if True:
        import asyncio
        from asgiref.sync import sync_to_async
        from django.core.exceptions import SynchronousOnlyOperation

        @sync_to_async
        def place():
            with transaction.atomic():
                put(Message("order.placed", key="async"))

        async def view():
            await place()
            try:
                put(Message("order.placed"))
            except (SynchronousOnlyOperation, NotInTransaction) as exc:
                print(type(exc).__name__)

        asyncio.run(view())
        print([each.key for each in OutboxMessage.objects.all()])
        """
    )
    assert said.splitlines() == ["SynchronousOnlyOperation", "['async']"]


def test_a_function_of_a_relay_gets_a_connection_again_after_one_broke(postgres_database: str) -> None:
    project = Project({"default": {**database(postgres_database), "CONN_MAX_AGE": None}})
    project.migrate()
    said = project.python(
        PUT
        + """if True:
        import psycopg
        from django.db import DatabaseError
        from postroom.integrations.django import fresh_connections
        from postroom.integrations.django.conf import store_url

        @fresh_connections
        def count(message):
            return Order.objects.count()

        def said(message):
            try:
                return count(message)
            except DatabaseError:
                return "broken"

        message = Message("order.placed")
        print(said(message))
        with psycopg.connect(store_url(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                          "WHERE pid <> pg_backend_pid() AND datname = current_database()")
        print(said(message), said(message))
        try:
            @fresh_connections
            async def wrong(message): ...
        except TypeError as exc:
            print(exc)
        """
    )
    first, then, refused = said.splitlines()
    assert (first, then) == ("0", "broken 0")
    assert refused == "wrong is async, and has no connections of Django's: write it as a plain function."
