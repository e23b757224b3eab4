"""The story as lines on stdout, for pipes, logs and CI; and what there is to tell of the books."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from postroom.contracts.ops import Record
from postroom.demo.books import Books, Fact
from postroom.demo.shop import Order, is_told, order_of


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


class Stage:
    """Tells the story, in lines on stdout."""

    pace = 0.0
    """How many seconds a moment takes. 0: nobody watches."""

    def __init__(self) -> None:
        self.fallen: set[str] = set()
        """The relays that are dead."""
        self._fault = ""

    def open(self) -> AbstractContextManager[object]:
        """The curtain: what is shown while it is open is put in order after it."""
        return nullcontext()

    def scene(self, title: str) -> None:
        """Begin another part of the story."""
        _write(f"\n{title}")

    def strike(self, fault: str, now: str = "") -> None:
        """A fault strikes, and this is how it stands now; told again while it lasts."""
        # How long a lease still lasts is nothing for a log.
        if self._fault != fault:
            _write(f"  !! {fault}{now and f': {now}'}")
        self._fault = fault

    def fix(self, how: str) -> None:
        """The fault is over."""
        _write(f"  ok {how}")

    def tell(self, line: Line) -> None:
        """Something happened."""
        _write(f"  {line}")

    def show(self, books: Books) -> None:
        """How the books stand now. Told again and again: too often for a log."""

    def dwell(self, books: Books) -> None:
        """Nothing can move without a person: how the books stand."""
        titles = ("#", "CUSTOMER", "AMOUNT", "STATUS", "TRIES", "HANDLED BY", "WHY")
        _write("\n".join(["", *map(_row, [titles, *(self._cells(record, books) for record in books.records)]), ""]))

    def prove(self, facts: Sequence[Fact]) -> None:
        """The end: what the stores say."""
        _write("\nWhat the stores say in the end")
        for fact in facts:
            _write(f"  {fact.name:<32} {fact.value:>4}  {'ok ' if fact.fine else 'WRONG'} {fact.remark}".rstrip())

    def _cells(self, record: Record, books: Books) -> tuple[str, ...]:
        order, handlers = order_of(record.message), " ".join(handlers_of(record, books))
        about = (str(order.number), order.customer, f"{order.amount:,}", record.status, str(record.attempts))
        return (*about, handlers, why(record, books, self.fallen))


def _row(cells: tuple[str, ...]) -> str:
    number, customer, amount, status, tries, handlers, about = cells
    return f"{number:>2}  {customer:<8}  {amount:>6}  {status:<9}  {tries:>5}  {handlers:<16}  {about}".rstrip()


def _write(text: str) -> None:
    print(text, flush=True)


# ── what is told of the books ──


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
