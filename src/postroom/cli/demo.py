"""`postroom demo`: a small shop, so that a newcomer sees what an outbox is for."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import click

from postroom.cli.output import Column, write, write_table
from postroom.config import RelayConfig
from postroom.message import Message
from postroom.outbox import Outbox
from postroom.relay import Relay, Route
from postroom.retry import RetryPolicy
from postroom.store import Query, Record, Store
from postroom.stores import open_store
from postroom.transport import Envelope, Failed, Outcome, Rejected
from postroom.transports.memory import MemoryBroker, MemoryPublisher

ORDERS = [("ada", 120), ("grace", 80), ("edsger", 9_999), ("barbara", 45), ("grace", 30), ("ada", 60), ("barbara", 15)]
CREDIT = 1_000
"""Nobody may owe more; an order above it is rolled back."""
CONFIG = RelayConfig(poll=timedelta(milliseconds=50))
RETRY = RetryPolicy.parse("0.3", max_attempts=3)


class CreditRefused(Exception):
    """The shop's own error: the order is too large."""


class Warehouse(MemoryPublisher):
    """The broker of the demo, in this process. It drops Grace's first order twice, and refuses Barbara's until told."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        super().__init__(self.broker)
        self.refuses_barbara = True
        self._drops = 2

    def _take(self, envelope: Envelope) -> Outcome:
        message = envelope.message
        if message.key == "grace" and self._drops:
            self._drops -= 1
            return _said(message, Failed("TIMEOUT", "the warehouse did not answer"))
        if message.key == "barbara" and self.refuses_barbara:
            return _said(message, Rejected("UNKNOWN_CUSTOMER", "the warehouse does not know barbara"))
        return _said(message, super()._take(envelope))


def _said(message: Message, outcome: Outcome) -> Outcome:
    answer = outcome.code if isinstance(outcome, Failed | Rejected) else "confirmed"
    write(f"  {message.type}  {message.key:<8} {message.data['amount']:>5}   {answer}")
    return outcome


@click.command(short_help="Watch orders and their messages travel, with the faults that strike them.")
def demo() -> None:
    """A small shop on SQLite takes orders; each writes a row and puts a message, in one transaction. A relay carries the
    messages to a broker in this process; one fails and is retried, one is refused, parks its customer, and is requeued.
    At the end the tables are compared: as many deliveries as orders, none lost, none of what was rolled back.

    \b
    Examples:
      postroom demo
    """
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        path = Path(folder) / "shop.db"
        write(f"A shop on SQLite, in {path}")
        asyncio.run(_init(path))
        orders = _sell(path)
        problems = asyncio.run(_deliver(path, orders))
    if problems:
        raise click.ClickException(f"that must never happen, please report it: {'; '.join(problems)}")


async def _init(path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        await store.migrate()


def _sell(path: Path) -> list[tuple[str, int]]:
    """Take the orders; which were committed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE orders (customer TEXT NOT NULL, amount INTEGER NOT NULL)")
    _heading("The shop takes orders: a row and a message, one transaction")
    for customer, amount in ORDERS:
        _take(connection, customer, amount)
    orders = connection.execute("SELECT customer, amount FROM orders ORDER BY rowid").fetchall()
    connection.close()
    return orders


def _take(connection: sqlite3.Connection, customer: str, amount: int) -> None:
    """One order: the row and the message commit together, or neither is there."""
    outbox = Outbox()
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO orders VALUES (?, ?)", (customer, amount))
        outbox.put(connection, Message("order.placed", key=customer, data={"amount": amount}))
        _check_credit(amount)
        connection.execute("COMMIT")
        write(f"  INSERT + put  {customer:<8} {amount:>5}   COMMIT")
    except CreditRefused as refused:
        connection.execute("ROLLBACK")
        write(f"  INSERT + put  {customer:<8} {amount:>5}   ROLLBACK: {refused}")


def _check_credit(amount: int) -> None:
    if amount > CREDIT:
        raise CreditRefused(f"more than the credit of {CREDIT}")


async def _deliver(path: Path, orders: list[tuple[str, int]]) -> list[str]:
    """Carry the messages, with the faults; what is wrong in the end, which is nothing."""
    warehouse = Warehouse()
    async with open_store(f"sqlite:///{path}") as store:
        _heading("The relay carries them to the warehouse; Grace's first is dropped twice, Barbara's is refused")
        await _drain(store, warehouse)
        _show(await store.find(Query()))
        _heading("A person tells the warehouse about Barbara, and requeues the dead letter")
        warehouse.refuses_barbara = False
        await store.requeue(Query(status="dead"))
        await _drain(store, warehouse)
        return _compare(orders, warehouse.broker.topics["messages"], await store.find(Query()))


async def _drain(store: Store, warehouse: Warehouse) -> None:
    await Relay(store, [Route(to=warehouse, retry=RETRY)], config=CONFIG, name="demo").drain()


def _compare(orders: list[tuple[str, int]], delivered: Sequence[Message], records: Sequence[Record]) -> list[str]:
    arrived = [(str(message.key), message.data["amount"]) for message in delivered]
    lost = [order for order in orders if order not in arrived]
    ghosts = [each for each in arrived if each not in orders]
    keys = {customer for customer, _ in orders}
    in_order = all([o for o in orders if o[0] == key] == [a for a in arrived if a[0] == key] for key in keys)
    _heading("What the tables say in the end")
    rows = [
        ["orders committed", str(len(orders))],
        ["orders rolled back", str(len(ORDERS) - len(orders))],
        ["messages published", str(sum(record.status == "published" for record in records))],
        ["messages delivered", str(len(arrived))],
        ["lost", str(len(lost))],
        ["ghosts", str(len(ghosts))],
        ["order kept per customer", "yes" if in_order else "NO"],
    ]
    for name, value in rows:
        write(f"  {name:<26} {value:>4}")
    wrong = {"messages were lost": lost, "ghosts were delivered": ghosts, "the order was broken": not in_order}
    return [problem for problem, found in wrong.items() if found]


def _heading(text: str) -> None:
    write("")
    write(text)


def _show(records: Sequence[Record]) -> None:
    _heading("What is in the outbox now:")
    rows = [
        [
            str(record.seq),
            record.message.key or "",
            (record.message.body or b"").decode(),
            record.status,
            str(record.attempts),
            record.last_error_code or ("waits for the dead one" if record.parked else ""),
        ]
        for record in records
    ]
    titles = ["SEQ", "KEY", "PAYLOAD", "STATUS", "TRIES", "WHY"]
    columns = [Column(title, right=title in ("SEQ", "TRIES"), flexible=title == "PAYLOAD") for title in titles]
    write_table(columns, rows)
