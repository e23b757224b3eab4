"""The example of the orders, as its README says, on a real PostgreSQL and a real Kafka; both of its processes are killed."""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.examples.readme import Example
from tests.scenarios.applications import Application, application
from tests.servers.databases import fresh_database
from tests.servers.topics import fresh_topic

from postroom.testing.waiting import until

ORDERS = 60
KAFKA = "kafka://broker:9092/orders"
PACE = "session.timeout.ms=6000&heartbeat.interval.ms=500"
"""How soon Kafka notices a receiver that was killed: 45 s, if nobody says otherwise."""
LEASE = "6s"
"""How soon another relay takes over from one that was killed on another machine: 30 s, if nobody says otherwise."""
STATES = "SELECT status, count(*) FROM outbox_messages GROUP BY 1"


def rows(url: str, query: str) -> list[tuple[str, int]]:
    with psycopg.connect(url) as connection:
        return [(str(number), int(amount)) for number, amount in connection.execute(query.encode()).fetchall()]


def curled(line: str, app: Application) -> tuple[int, object]:
    """What this line of curl asks for."""
    program, *arguments = shlex.split(line)
    assert program == "curl"
    (address,) = [each for each in arguments if each.startswith("http://")]
    method = arguments[arguments.index("-X") + 1] if "-X" in arguments else "GET"
    data = arguments[arguments.index("-d") + 1].encode() if "-d" in arguments else None
    return app.request(method, urlsplit(address).path, data)


@contextmanager
def a_receiver(billing: Example, line: str) -> Iterator[subprocess.Popen[bytes]]:
    process = billing.start(line, subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def customers(app: Application, number: int) -> threading.Thread:
    """Somebody who orders, until the shop is gone."""

    def order() -> None:
        with suppress(OSError):  # the shop was killed: the customer does not know, and neither do we
            for amount in range(1, number + 1):
                app.request("POST", "/orders", {"item": "lamp", "amount": amount})

    thread = threading.Thread(target=order)
    thread.start()
    return thread


@pytest.mark.timeout(240)
@pytest.mark.requirement("C1")
def test_every_order_is_charged_once_though_the_shop_and_billing_are_killed(kafka_url: str, postgres_url: str) -> None:
    with (
        fresh_database(postgres_url) as shop,
        fresh_database(postgres_url) as billing,
        fresh_topic(kafka_url) as topic,
    ):
        at_shop, at_billing = Example("orders", shop), Example("orders", billing)
        (init, serve), (init_billing, make_table, consume), (place, ready) = at_shop.blocks()
        consume = consume.replace(KAFKA, f"'{kafka_url}/{topic}?{PACE}'")
        serving = partial(
            application, at_shop.folder, shlex.split(serve)[1:-2],
            POSTROOM_STORE=shop, POSTROOM_TO=f"{kafka_url}/{topic}", POSTROOM_LEASE=LEASE, POSTROOM_BACKOFF="1,1,1,1,1",
        )  # fmt: skip
        at_shop.run(init)
        at_billing.run(init_billing)
        at_billing.run(make_table)

        with serving() as app, a_receiver(at_billing, consume) as receiver:
            status, placed = curled(place, app)
            assert status == 201
            assert isinstance(placed, dict)
            assert app.request("GET", f"/orders/{placed['id']}") == (200, placed)
            assert app.request("POST", "/orders", {"item": "lamp", "amount": 0})[0] == 422
            until(lambda: rows(billing, "SELECT * FROM charges") == [(placed["id"], 12)], lambda: app.output)
            until(lambda: curled(ready, app)[0] == 200, lambda: app.output)
            ordering = customers(app, 10_000)
            until(lambda: len(rows(billing, "SELECT * FROM charges")) >= 10, lambda: app.output)
            receiver.kill()
            app.process.kill()
            ordering.join()

        with serving() as app, a_receiver(at_billing, consume) as receiver:
            customers(app, ORDERS).join()
            orders = rows(shop, "SELECT id, amount FROM orders")
            assert len(orders) > ORDERS
            # What was in flight when the shop was killed goes again, after a wait.
            until(lambda: rows(shop, STATES) == [("published", len(orders))], lambda: app.output)
            until(lambda: len(rows(billing, "SELECT * FROM charges")) >= len(orders), lambda: app.output)
            assert "Traceback" not in app.stop()
            receiver.terminate()
            said, _ = receiver.communicate(timeout=60)
            assert receiver.returncode == 0
            assert b"handled" in said
        assert Counter(rows(billing, "SELECT * FROM charges")) == Counter(orders)
        assert re.search(rf"billing +{len(orders):,} +0 +0 +0", at_billing.run("postroom inbox status"))
