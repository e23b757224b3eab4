"""What the stores say at one moment: the picture is drawn from it, the story waits for it, and the proof is computed of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from postroom.cli.demo.place import Place
from postroom.cli.demo.shop import Order, is_told, order_of
from postroom.contracts.inbox import InboxStore
from postroom.contracts.lanes import Lane
from postroom.contracts.ops import Query, Record
from postroom.contracts.store import Store

EFFECTS = {"billing": "bills", "shipping": "parcels"}
"""The consumers, and the table that each writes."""
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
    deliveries: Counter[tuple[str, str]]
    """How often each consumer was handed each message, by its id."""
    lanes: Sequence[Lane] = ()
    """Who may send what."""

    @property
    def placed(self) -> Sequence[Record]:
        """The messages for the broker."""
        return [record for record in self.records if not is_told(record.message)]

    def record(self, number: int) -> Record:
        """The message of this order to the broker."""
        return next(each for each in self.placed if order_of(each.message).number == number)

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


async def read(place: Place, connection: Any, store: Store, inbox: InboxStore) -> Books:
    """Read the books anew, from the tables and nothing else."""

    def rows(text: str) -> list[tuple[Any, ...]]:
        with place.answering():
            return list(connection.execute(place.sql(text)).fetchall())

    def own() -> tuple[list[Order], dict[str, list[Order]], Counter[tuple[str, str]]]:
        orders = [Order(*row) for row in rows("SELECT number, customer, amount FROM {orders} ORDER BY number")]
        effects = {name: [Order(*row) for row in rows(WRITTEN[name])] for name in EFFECTS}
        return (
            orders,
            effects,
            Counter((str(row[0]), str(row[1])) for row in rows("SELECT consumer, id FROM {deliveries}")),
        )

    # Deliveries and effects first: whatever they tell of was put before, so that its message is found.
    orders, effects, deliveries = await asyncio.to_thread(own)
    counts = await inbox.counts()
    handled = {name: counts.get(name, {}).get("handled", 0) for name in EFFECTS}
    records = await store.ops.find(Query())
    return Books(
        orders=orders,
        records=records,
        effects=effects,
        handled=handled,
        deliveries=deliveries,
        lanes=await store.lanes.all(),
    )
