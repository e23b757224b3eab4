"""The story as lines on stdout: for pipes, logs and CI."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from postroom.cli.demo.books import Books
from postroom.cli.demo.proof import Fact
from postroom.cli.demo.shop import order_of
from postroom.cli.demo.telling import Line, handlers_of, why
from postroom.cli.output import Column, write, write_table
from postroom.contracts.ops import Record


class PlainStage:
    """Lines on stdout, as they come."""

    pace = 0.0

    def __init__(self) -> None:
        self.fallen: set[str] = set()
        self._fault = ""

    def open(self) -> AbstractContextManager[object]:
        return nullcontext()

    def scene(self, title: str) -> None:
        write("")
        write(title)
        sys.stdout.flush()

    def strike(self, fault: str, now: str = "") -> None:
        # How long a lease still lasts is nothing for a log.
        if self._fault != fault:
            write(f"  !! {fault}{now and f': {now}'}")
            sys.stdout.flush()
        self._fault = fault

    def mend(self, how: str) -> None:
        write(f"  ok {how}")

    def tell(self, line: Line) -> None:
        write(f"  {line}")
        sys.stdout.flush()

    def show(self, books: Books) -> None:
        """Too often for a log."""

    def dwell(self, books: Books) -> None:
        write("")
        titles = ["#", "CUSTOMER", "AMOUNT", "STATUS", "TRIES", "HANDLED BY", "WHY"]
        columns = [Column(each, right=each in {"#", "AMOUNT", "TRIES"}, flexible=each == "WHY") for each in titles]
        write_table(columns, [self._row(record, books) for record in books.records])
        write("")

    def prove(self, facts: Sequence[Fact]) -> None:
        write("")
        write("What the stores say in the end")
        for fact in facts:
            write(f"  {fact.name:<32} {fact.value:>4}  {'ok ' if fact.fine else 'WRONG'} {fact.remark}".rstrip())

    def _row(self, record: Record, books: Books) -> list[str]:
        order = order_of(record.message)
        handlers = " ".join(handlers_of(record, books))
        about = [str(order.number), order.customer, f"{order.amount:,}", record.status, str(record.attempts)]
        return [*about, handlers, why(record, books, self.fallen)]
