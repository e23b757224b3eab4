"""A sync handler uses the ORM inside the inbox's transaction, which is Django's own."""

from __future__ import annotations

import pytest
from tests.unit.integrations.django.projects import Project, database

HANDLE = """if True:
    import asyncio
    from postroom import Message, open_store
    from postroom.errors import StoreUnavailable
    from postroom.inbox.handling import Handling
    from postroom.integrations.django.conf import store_url
    from postroom.integrations.django.inbox import DjangoStore
    from postroom.integrations.django.models import OutboxMessage
    from postroom.config.tables import TableNames
    from postroom.contracts.transport import Delivery
    from postroom.threads import Threads
    from shop.handlers import inbox
    from shop.models import Order
    one = Message("order.placed", key="one", data="fine")
    bad = Message("order.placed", key="bad", data="refuse")
    swallowed = Message("order.swallowed")

    async def handling(*messages):
        results, threads = [], Threads("test")
        async with DjangoStore(open_store(store_url()), "default", TableNames()) as store:
            handle = Handling(inbox, store.inbox, threads, system="test")
            for message in messages:
                try:
                    results.append(await handle.one(Delivery(message, "shop", "orders")))
                except StoreUnavailable as exc:
                    results.append("unavailable")
            counts = {name: dict(each) for name, each in (await store.inbox.counts()).items()}
        threads.close()
        return results, counts
"""


def test_effects_and_the_row_are_one_commit_and_happen_once(project: Project) -> None:
    said = project.python(
        HANDLE
        + """
    results, counts = asyncio.run(handling(one, one, bad, bad))
    print(*[getattr(each, "how", None) or each.code for each in results])
    print(sorted(counts['shop'].items()))
    print(*Order.objects.all())
    print(*[(each.type, each.key, each.causation_id == str(one.id)) for each in OutboxMessage.objects.all()])
    """
    )
    assert said.splitlines() == [
        "handled known UNACCEPTABLE known",
        "[('dead', 1), ('handled', 1)]",
        "inbox one",
        "('order.confirmed', 'one', True)",
    ]


def test_many_at_once_are_all_handled_each_in_its_own_transaction(project: Project) -> None:
    said = project.python(
        HANDLE
        + """
    orders = [Message("order.placed", key=f"order-{number}", data="fine") for number in range(40)]
    async def together():
        threads = Threads("test")
        async with DjangoStore(open_store(store_url()), "default", TableNames()) as store:
            handle = Handling(inbox, store.inbox, threads, system="test")
            print({each.how for each in await asyncio.gather(
                *(handle.one(Delivery(message, "shop", "orders")) for message in orders))})
        threads.close()
    asyncio.run(together())
    print(Order.objects.count(), OutboxMessage.objects.count())
    """
    )
    assert said.splitlines() == ["{'handled'}", "40 40"]


def test_on_postgresql_a_handler_that_goes_on_after_an_error_has_failed(postgres_database: str) -> None:
    """PostgreSQL would answer the COMMIT with a rollback, and call that no error."""
    project = Project.on(postgres_database)
    project.migrate()
    said = project.python(
        HANDLE
        + "\n    results, counts = asyncio.run(handling(swallowed))\n    print(results[0].code, counts, Order.objects.count())"
    )
    assert said == "BROKEN_TRANSACTION {'shop': {'failing': 1}} 0\n"


def test_a_handler_that_ends_djangos_transaction_is_seen(project: Project) -> None:
    said = project.python(
        HANDLE
        + """
    from django.db import connection
    @inbox.on("order.committed")
    def committed(message, tx):
        Order.objects.create(name="committed")
        connection.cursor().execute("COMMIT")
        raise OSError("the bank is closed")
    @inbox.on("order.closed")
    def closed(message, tx):
        connection.close()
        raise OSError("the bank is closed")
    results, counts = asyncio.run(handling(Message("order.committed"), Message("order.closed"), one))
    print(*[getattr(each, "how", None) or (type(each).__name__, each.code) for each in results])
    print(sorted(counts['shop'].items()))
    print(*Order.objects.all())
    """
    )
    assert said.splitlines() == [
        "('Dead', 'BROKEN_TRANSACTION') ('Again', 'BROKEN_TRANSACTION') handled",
        "[('dead', 1), ('failing', 1), ('handled', 1)]",
        "committed inbox one",
    ]


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_connection_that_broke_costs_no_attempt_and_is_opened_anew(postgres_database: str, when: str) -> None:
    project = Project({"default": {**database(postgres_database), "CONN_MAX_AGE": None}})
    project.migrate()
    said = project.python(
        HANDLE
        + f"""
    from django.db import connection
    import psycopg
    def cut():
        with psycopg.connect(store_url(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                          "AND datname = current_database()")
    done = []
    @inbox.on("order.cut")
    def cutting(message, tx):
        if not done:
            done.append(1)
            if {when == "while"}:
                cut()
        Order.objects.create(name=f"cut {{len(done)}} {{message.key}}")
    first, second, third = (Message("order.cut", key=key) for key in "abc")
    async def both():
        threads = Threads("test")
        async with DjangoStore(open_store(store_url()), "default", TableNames()) as store:
            handle = Handling(inbox, store.inbox, threads, system="test")
            for message in (first, first, second, third, third):
                try:
                    print((await handle.one(Delivery(message, "shop", "orders"))).how)
                except StoreUnavailable:
                    print("unavailable")
                if {when == "before"} and message is second:
                    cut()
        threads.close()
    asyncio.run(both())
    """
    )
    lines = said.split()
    if when == "while":
        assert lines == ["unavailable", "handled", "handled", "handled", "known"]
    else:
        assert lines == ["handled", "known", "handled", "unavailable", "handled"]
