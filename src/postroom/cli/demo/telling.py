"""What is told of the books: a line for what happened, a few words for why a message is where it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from postroom.cli.demo.books import Books
from postroom.cli.demo.shop import Order, is_told, order_of
from postroom.contracts.ops import Record


class Line(NamedTuple):
    """Something that happened."""

    who: str
    """Who tells it: the shop, the relay, a consumer, a person."""
    what: str
    order: Order | None = None
    style: str = ""

    def __str__(self) -> str:
        about = f"#{self.order.number:<2} {self.order.customer:<7} {self.order.amount:>5,}  " if self.order else ""
        return f"{self.who:<8}  {about}{self.what}"


def handlers_of(record: Record, books: Books) -> list[str]:
    """Who has handled it."""
    if is_told(record.message):
        return ["webhook"] if record.status == "published" else []
    return books.handlers(record)


def why(record: Record, books: Books, fallen: Collection[str] = ()) -> str:
    """Why a message is where it is, in a few words."""
    key = record.message.key
    if record.status == "published":
        return "came twice: known" if books.came(record) > 1 else ""
    if record.status == "sending":
        return "its relay is dead" if (record.owner or "").partition(":")[0] in fallen else ""
    if record.status == "dead":
        return record.last_error_code or ""
    if record.parked:
        return "behind the dead"
    if any(other.seq < record.seq and other.message.key == key and other.settled_at is None for other in books.records):
        return "waits its turn"
    return f"{record.last_error_code}, try {record.attempts + 1}" if record.status == "failed" else ""


def changes(before: Books | None, now: Books) -> list[Line]:
    """What happened between two looks at the books."""
    lines = []
    earlier = {record.seq: record for record in before.records} if before else {}
    for record in now.records:
        old, order = earlier.get(record.seq), order_of(record.message)
        status = old.status if old else "pending"
        if record.status == "published" != status:
            lines.append(Line("relay", f"published{', at the webhook' if is_told(record.message) else ''}", order))
        elif record.status == "dead" != status:
            lines.append(Line("relay", f"{record.last_error_code}: refused, a dead letter", order, "red"))
        known = before.handlers(old) if before and old else []
        new = [name for name in now.handlers(record) if name not in known]
        lines += [Line(name, "handled: effect and inbox row, one COMMIT", order, "green") for name in new]
    for (name, id_), count in now.deliveries.items():
        if count > max(before.deliveries[name, id_] if before else 0, 1):
            record = next(record for record in now.records if record.message.id_text == id_)
            lines.append(Line(name, "came again: the inbox knows it", order_of(record.message), "magenta"))
    return lines
