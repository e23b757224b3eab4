"""Where the story is told: what happened, line by line, and how long a moment is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from postroom.cli.demo.shop import Order
from postroom.cli.output import Column, write, write_table
from postroom.store import Record


class Line(NamedTuple):
    """Something that happened to an order."""

    who: str
    """Who tells it: the shop, the warehouse, a person."""
    order: Order
    what: str
    style: str = ""

    def __str__(self) -> str:
        return f"{self.who:<9}  {self.order.customer:<8} {self.order.amount:>6,}  {self.what}"


class Stage(Protocol):
    """Tells the story."""

    pace: float
    """How many seconds a moment takes. 0: nobody watches."""

    def open(self) -> AbstractContextManager[object]:
        """The curtain: what is shown while it is open is put in order after it."""

    def scene(self, title: str) -> None:
        """Begin another part of the story."""

    def tell(self, line: Line) -> None:
        """Something happened."""

    def outbox(self, records: Sequence[Record]) -> None:
        """How the outbox stands now. Told again and again."""

    def pause(self, records: Sequence[Record]) -> None:
        """Nothing can move without a person: how the outbox stands."""


class PlainStage:
    """Lines on stdout, as they come."""

    pace = 0.0

    def open(self) -> AbstractContextManager[object]:
        return nullcontext()

    def scene(self, title: str) -> None:
        write("")
        write(title)
        sys.stdout.flush()

    def tell(self, line: Line) -> None:
        write(f"  {line}")

    def outbox(self, records: Sequence[Record]) -> None:
        """Too often for a log."""

    def pause(self, records: Sequence[Record]) -> None:
        write("")
        titles = ["SEQ", "CUSTOMER", "AMOUNT", "STATUS", "TRIES", "WHY"]
        right = {"SEQ", "AMOUNT", "TRIES"}
        rows = [
            [str(record.seq), *_order(record), record.status, str(record.attempts), why(record, records)]
            for record in records
        ]
        write_table([Column(title, right=title in right, flexible=title == "WHY") for title in titles], rows)


def order_of(record: Record) -> Order:
    """The order that a message tells of."""
    return Order(record.message.key or "", record.message.data["amount"])


def why(record: Record, records: Sequence[Record]) -> str:
    """Why a message is where it is among these, in a few words."""
    if record.status == "published":
        return ""
    if record.parked and record.settled_at is None:
        return "waits for the dead one"
    ahead = any(
        other.seq < record.seq and other.message.key == record.message.key and other.settled_at is None
        for other in records
    )
    return "waits its turn" if ahead else record.last_error_code or ""


def _order(record: Record) -> tuple[str, str]:
    order = order_of(record)
    return order.customer, f"{order.amount:,}"
