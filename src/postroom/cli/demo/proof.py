"""What the stores say in the end, and whether it is what was promised. Computed of the tables, never of what the story did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from postroom.cli.demo.books import EFFECTS, Books
from postroom.cli.demo.place import Place
from postroom.cli.demo.shop import Order, order_of


class Fact(NamedTuple):
    """A line of the proof."""

    name: str
    value: str
    fine: bool
    remark: str = ""


def facts_of(books: Books) -> list[Fact]:
    """The proof, line by line."""
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
        _order_kept(books),
    ]


def problems(facts: Sequence[Fact]) -> str:
    """What is wrong, in one line; nothing, unless Postroom broke its word."""
    return "; ".join(f"{fact.name}: {fact.value}" for fact in facts if not fact.fine)


def _order_kept(books: Books) -> Fact:
    """Did each customer's orders have their effects in the order they were written? What is lost or twice is told apart."""
    kept = all(_in_order(books.orders, lines) for lines in books.effects.values())
    return Fact("order kept per customer", "yes" if kept else "NO", kept)


def _in_order(orders: Sequence[Order], lines: Sequence[Order]) -> bool:
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


def plant(place: Place, what: str) -> None:
    """Do this to the tables."""
    with closing(place.connect()) as connection, place.transaction(connection):
        for statement in PLANTS[what]:
            connection.execute(place.sql(statement))
