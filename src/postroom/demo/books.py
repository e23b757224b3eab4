"""What the stores say at one moment. The picture is drawn from it, the story waits for it, the proof is computed from it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from postroom.contracts.lanes import Lane
from postroom.contracts.ops import Query, Record
from postroom.demo.database import Database
from postroom.demo.shop import EFFECTS, Deliveries, Order, is_told, order_of

WRITTEN = {
    "billing": "SELECT number, customer, amount FROM {bills} ORDER BY place",
    "shipping": "SELECT number, customer, amount FROM {parcels} ORDER BY place",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """All of it, as read."""

    orders: Sequence[Order]
    """Committed, by the shop's own table."""
    records: Sequence[Record]
    """The outbox."""
    effects: Mapping[str, Sequence[Order]]
    """What each consumer wrote, in the order written."""
    handled: Mapping[str, int]
    """How many messages each consumer's inbox remembers."""
    deliveries: Deliveries
    lanes: Sequence[Lane] = ()
    """Who may send what."""

    def record(self, number: int) -> Record:
        """The message of this order to the broker."""
        placed = (record for record in self.records if not is_told(record.message))
        return next(each for each in placed if order_of(each.message).number == number)

    def handlers(self, record: Record) -> list[str]:
        """Which consumers have handled the message."""
        order = order_of(record.message)
        return [] if is_told(record.message) else [name for name, lines in self.effects.items() if order in lines]

    def is_done(self, record: Record) -> bool:
        """Has it arrived, and has everybody handled it?"""
        wanted = 0 if is_told(record.message) else len(EFFECTS)
        return record.status == "published" and len(self.handlers(record)) == wanted

    @property
    def all_done(self) -> bool:
        """Has everything arrived?"""
        return all(map(self.is_done, self.records))

    def lease_left(self, relay: str, now: datetime) -> timedelta | None:
        """For how long lanes are still this relay's; nothing as long as nobody took them over, None then."""
        leases = [lane.lease_until for lane in self.lanes if (lane.owner or "").startswith(f"{relay}:")]
        return max(max(filter(None, leases), default=now) - now, timedelta(0)) if leases else None

    def came(self, record: Record) -> int:
        """How often the consumer that was handed it most often was handed it."""
        return max(self.deliveries[name, record.message.id_text] for name in EFFECTS)

    def came_again(self, number: int) -> bool:
        """Was each consumer handed this order twice, or more often?"""
        id_ = self.record(number).message.id_text
        return all(self.deliveries[name, id_] > 1 for name in EFFECTS)


async def read(database: Database, deliveries: Deliveries) -> Books:
    """Read the books from the tables and nothing else. Only the deliveries are no store's: the consumers noted them."""

    def own() -> tuple[list[Order], dict[str, list[Order]]]:
        with database.transaction() as connection:

            def orders(text: str) -> list[Order]:
                return [Order(*row) for row in connection.execute(database.sql(text)).fetchall()]

            placed = orders("SELECT number, customer, amount FROM {orders} ORDER BY number")
            return placed, {name: orders(WRITTEN[name]) for name in EFFECTS}

    # Deliveries and effects first: whatever they tell of was put before, so that its message is found.
    noted = deliveries.copy()
    placed, effects = await asyncio.to_thread(own)
    counts = await database.store.inbox.counts()
    return Books(
        orders=placed,
        effects=effects,
        deliveries=noted,
        handled={name: counts.get(name, {}).get("handled", 0) for name in EFFECTS},
        records=await database.store.ops.find(Query()),
        lanes=await database.store.lanes.all(),
    )


# ── the proof ──


class Fact(NamedTuple):
    """A line of the proof."""

    name: str
    value: str
    fine: bool
    remark: str = ""


def facts_of(books: Books) -> list[Fact]:
    """The proof, line by line. Computed from the tables, never from what the story did."""
    committed = Counter(books.orders)
    done = {name: Counter(lines) for name, lines in books.effects.items()}
    lost = sum((committed - each).total() for each in done.values())
    known = set(books.orders)
    twice = sum(count - 1 for each in done.values() for order, count in each.items() if order in known)
    told_of = [order_of(record.message) for record in books.records]
    ghosts = sum(order not in known for order in (*told_of, *(order for each in done.values() for order in each)))
    unpublished = sum(record.status != "published" for record in books.records)
    # What came again, and did not have its effect again.
    stopped = books.deliveries.total() - len(books.deliveries) - twice
    inboxes = all(books.handled[name] == len(books.effects[name]) for name in EFFECTS)
    kept = all(_in_order(books.orders, lines) for lines in books.effects.values())
    return [
        Fact("orders committed", f"{len(books.orders)}", len(books.orders) > 0),
        *(
            Fact(f"{table} written", f"{len(books.effects[name])}", done[name] == committed, "one for each order")
            for name, table in EFFECTS.items()
        ),
        Fact("lost", f"{lost}", lost == 0),
        Fact("handled twice", f"{twice}", twice == 0),
        Fact("traces of the order rolled back", f"{ghosts}", ghosts == 0),
        Fact("messages not published", f"{unpublished}", unpublished == 0, f"of {len(books.records)}"),
        Fact("inbox rows match the effects", "yes" if inboxes else "NO", inboxes),
        Fact("duplicates stopped by the inbox", f"{stopped}", True, f"of {books.deliveries.total()} deliveries"),
        Fact("order kept per customer", "yes" if kept else "NO", kept),
    ]


def problems(facts: Sequence[Fact]) -> str:
    """What is wrong, in one line; nothing, unless Postroom broke its word."""
    return "; ".join(f"{fact.name}: {fact.value}" for fact in facts if not fact.fine)


def _in_order(orders: Sequence[Order], lines: Sequence[Order]) -> bool:
    """Did each customer's orders have their effects in the order they were written? What is lost or twice is told apart."""
    first = list(dict.fromkeys(lines))
    return all(
        [each for each in orders if each.customer == name and each in first]
        == [each for each in first if each.customer == name and each in orders]
        for name in {order.customer for order in orders}
    )


PLANTS = {
    "loss": ["DELETE FROM {bills} WHERE place = (SELECT min(place) FROM {bills})"],
    "double": [
        "INSERT INTO {parcels} (number, customer, amount) SELECT number, customer, amount FROM {orders} WHERE number = 1"
    ],
    "inversion": [
        "UPDATE {bills} SET number = -1 WHERE number = 1",
        "UPDATE {bills} SET number = 1, amount = 120 WHERE number = 5",
        "UPDATE {bills} SET number = 5, amount = 60 WHERE number = -1",
    ],
    "ghost": ["DELETE FROM {orders} WHERE number = 2"],
}
"""Breaches of promise, done behind Postroom's back: so that a test sees the proof turn red."""


def plant(database: Database, what: str) -> None:
    """Do this to the tables."""
    with database.transaction() as connection:
        for statement in PLANTS[what]:
            connection.execute(database.sql(statement))
