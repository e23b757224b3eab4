"""What requeue and discard share: which messages a person means, and what is said about them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import click

from postroom.cli.ids import ids_of
from postroom.cli.notes import say
from postroom.cli.options import Command, store_options, whole_type
from postroom.cli.output import write, write_json
from postroom.cli.records import write_records
from postroom.cli.session import Session
from postroom.contracts.ops import Progress, Query, Record, Status
from postroom.contracts.store import Store

PAGE = 500
"""How many messages are read at once."""
TOLD_FROM = 1_000
"""Fewer are done before anybody could read how far it is."""
SHOWN_MAX = 50
"""How many messages a person is shown."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Something a person does to messages of certain statuses."""

    verb: str
    done: str
    statuses: tuple[Status, ...]
    act: Callable[[Store, Query, Progress], Coroutine[Any, Any, int]]

    def options(self, command: Command) -> Command:
        """Add --store and its kin, ID…, --status and its kin, and --dry-run. What names messages is for `query`."""
        for add in (
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object that says what was done."),
            click.option("--dry-run", is_flag=True, help="Show which messages it would be, and change nothing."),
            click.option("--key", metavar="KEY", help="With --status: only messages with this key."),
            click.option(
                "--type", callback=whole_type, metavar="TYPE", help="With --status: only messages of this type."
            ),
            click.option(
                "--status",
                type=click.Choice(self.statuses),
                metavar="STATUS",
                help=f"Instead of ids: all that are {_either(self.statuses)}.",
            ),
            click.argument("names", metavar="[ID]...", nargs=-1),
            store_options,
        ):
            command = add(command)
        return command

    def query(
        self, session: Session, *, names: Sequence[str], status: Status | None, type: str | None, key: str | None
    ) -> Query:
        """The messages that the options name; a usage error when they name none, or name them twice. The beginning of an id
        is enough to name it."""
        others = [
            f"--{name}" for name, value in (("status", status), ("type", type), ("key", key)) if value is not None
        ]
        if names and others:
            raise click.UsageError(f"Ids name whole messages; leave out {', '.join(others)}, or the ids.")
        if not names and status is None:
            raise click.UsageError(f"Say which messages: give their ids, or --status {'|'.join(self.statuses)}.")
        ids = asyncio.run(_ids(session, names)) if names else []
        return Query(ids=tuple(ids), status=status, type=type, key=key)

    # ── looking ──

    def look(self, session: Session, query: Query) -> Sequence[Record]:
        """The messages that the query names, of whatever status."""
        return asyncio.run(_find(session, query))

    def may(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of them that this can be done to."""
        return [record for record in records if record.status in self.statuses]

    def preview(self, query: Query, records: Sequence[Record], *, as_json: bool = False) -> None:
        """Show what would be done."""
        able = self.may(records)
        if as_json:
            write_json({f"would_{self.verb}": len(able), "left_alone": _reasons(query, records, self.statuses)})
            return
        if able:
            write_records(able[:SHOWN_MAX], payload=False)
            write("")
        left = f" ({len(able) - SHOWN_MAX:,} are not shown)" if len(able) > SHOWN_MAX else ""
        write(_joined(f"would {self.verb} {messages(len(able))}{left}", _unable(query, records, self.statuses)))

    # ── doing ──

    def do(self, session: Session, query: Query, *, as_json: bool = False) -> None:
        """Do it to all that the query names, and say what was done."""
        with self._counting() as told:
            found = asyncio.run(self._find_and_act(session, query, told))
        self._tell(query, *found, as_json=as_json)

    def do_to(self, session: Session, query: Query, records: Sequence[Record]) -> None:
        """Do it to these messages that the query named, not to what came since, and say what was done."""
        # Without any the query would name every message.
        able = tuple(record.message.id for record in self.may(records))
        count = 0
        if able:
            with self._counting() as told:
                count = asyncio.run(self._act(session, replace(query, ids=able), told))
        self._tell(query, records, count)

    @contextmanager
    def _counting(self) -> Iterator[Progress]:
        """Tell whoever waits at a terminal how far it is; and whoever interrupts it, how far it came."""
        done = 0

        def told(count: int) -> None:
            nonlocal done
            done = count
            if sys.stderr.isatty() and count >= TOLD_FROM:
                click.echo(f"\r{self.done} {messages(count)} so far", err=True, nl=False)

        try:
            yield told
        except KeyboardInterrupt:
            say(f"{self.done} {messages(done)}, and stopped there: run it again for the rest")
            raise
        finally:
            if sys.stderr.isatty() and done >= TOLD_FROM:
                click.echo("\r\x1b[K", err=True, nl=False)

    async def _find_and_act(self, session: Session, query: Query, told: Progress) -> tuple[Sequence[Record], int]:
        async with session.store() as store:
            records = await _find_in(store, query) if query.ids else ()
            return records, await self.act(store, query, told)

    async def _act(self, session: Session, query: Query, told: Progress) -> int:
        async with session.store() as store:
            return await self.act(store, query, told)

    def _tell(self, query: Query, records: Sequence[Record], count: int, *, as_json: bool = False) -> None:
        """Say what was done; an error when ids were given and it was done to none of them."""
        if as_json and (count or not query.ids):
            write_json({self.done: count, "left_alone": _reasons(query, records, self.statuses)})
            return
        if not query.ids or count == len(query.ids):
            write(f"{self.done} {messages(count)}")
            return
        unable = list(_unable(query, records, self.statuses))
        if len(query.ids) - len(unable) != count:
            unable.append("the outbox moved meanwhile: run it again")
        if count == 0:
            raise click.ClickException(_joined(f"Nothing was {self.done}", unable))
        write(_joined(f"{count:,} of {len(query.ids):,} were {self.done}", unable))


def messages(count: int) -> str:
    """So many messages."""
    return f"{count:,} message{'' if count == 1 else 's'}"


async def _ids(session: Session, names: Sequence[str]) -> list[UUID]:
    async with session.store() as store:
        return await ids_of(store, names)


async def _find(session: Session, query: Query) -> Sequence[Record]:
    async with session.store() as store:
        return await _find_in(store, query)


async def _find_in(store: Store, query: Query) -> Sequence[Record]:
    """What the query names, a page at a time, and without the bodies: there may be a great many."""
    pages, before = list[Sequence[Record]](), None
    while page := await store.ops.find(replace(query, before=before, limit=PAGE)):
        pages.append([replace(record, message=record.message.replace(body=None)) for record in page])
        before = page[0].seq
        if len(page) < PAGE:
            break
    return [record for page in reversed(pages) for record in page]


def _unable(query: Query, records: Sequence[Record], statuses: Sequence[Status]) -> Iterator[str]:
    """Why it cannot be done to the ids that are left over."""
    for id_, reason in _reasons(query, records, statuses).items():
        yield f"{id_} is {reason}"


def _reasons(query: Query, records: Sequence[Record], statuses: Sequence[Status]) -> dict[str, str]:
    """By id: what those are that it cannot be done to."""
    found = {record.message.id: record.status for record in records}
    reasons: dict[UUID, str] = {id_: found.get(id_, "not in this outbox") for id_ in query.ids}
    return {
        str(id_): "in flight" if reason == "sending" else reason
        for id_, reason in reasons.items()
        if reason not in statuses
    }


def _joined(*parts: str | Iterator[str] | Sequence[str]) -> str:
    return "; ".join(part for each in parts for part in ([each] if isinstance(each, str) else each))


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
