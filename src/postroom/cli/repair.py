"""What requeue and discard share: which messages a person means, and what is said about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import click

from postroom.cli.options import Command, store_options
from postroom.cli.output import write
from postroom.cli.records import write_records
from postroom.cli.session import Session
from postroom.store import Query, Record, Status, Store

SHOWN_MAX = 50
"""How many messages a person is shown."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Something a person does to messages of certain statuses."""

    verb: str
    done: str
    statuses: tuple[Status, ...]
    act: Callable[[Store, Query], Coroutine[Any, Any, int]]

    def options(self, command: Command) -> Command:
        """Add --store and its kin, ID…, --status and its kin, and --dry-run. What names messages is for `query`."""
        for add in (
            click.option("--dry-run", is_flag=True, help="Show which messages it would be, and change nothing."),
            click.option("--key", metavar="KEY", help="With --status: only messages with this key."),
            click.option("--type", metavar="TYPE", help="With --status: only messages of this type."),
            click.option(
                "--status",
                type=click.Choice(self.statuses),
                metavar="STATUS",
                help=f"Instead of ids: all that are {_either(self.statuses)}.",
            ),
            click.argument("ids", metavar="[ID]...", type=click.UUID, nargs=-1),
            store_options,
        ):
            command = add(command)
        return command

    def query(self, *, ids: Sequence[UUID], status: Status | None, type: str | None, key: str | None) -> Query:
        """The messages that the options name; a usage error when they name none, or name them twice."""
        others = [
            f"--{name}" for name, value in (("status", status), ("type", type), ("key", key)) if value is not None
        ]
        if ids and others:
            raise click.UsageError(f"Ids name whole messages; leave out {', '.join(others)}, or the ids.")
        if not ids and status is None:
            raise click.UsageError(f"Say which messages: give their ids, or --status {'|'.join(self.statuses)}.")
        return Query(ids=tuple(dict.fromkeys(ids)), status=status, type=type, key=key)

    # ── looking ──

    def look(self, session: Session, query: Query) -> Sequence[Record]:
        """The messages that the query names, of whatever status."""
        return asyncio.run(_find(session, query))

    def may(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of them that this can be done to."""
        return [record for record in records if record.status in self.statuses]

    def preview(self, query: Query, records: Sequence[Record]) -> None:
        """Show what would be done."""
        able = self.may(records)
        if able:
            write_records(able[:SHOWN_MAX], payload=False)
            write("")
        left = f" ({len(able) - SHOWN_MAX:,} are not shown)" if len(able) > SHOWN_MAX else ""
        write(_joined(f"would {self.verb} {messages(len(able))}{left}", _unable(query, records, self.statuses)))

    # ── doing ──

    def do(self, session: Session, query: Query) -> None:
        """Do it to all that the query names, and say what was done."""
        self._tell(query, *asyncio.run(self._find_and_act(session, query)))

    def do_to(self, session: Session, query: Query, records: Sequence[Record]) -> None:
        """Do it to these messages that the query named, not to what came since, and say what was done."""
        # Without any the query would name every message.
        able = tuple(record.message.id for record in self.may(records))
        count = asyncio.run(self._act(session, replace(query, ids=able))) if able else 0
        self._tell(query, records, count)

    async def _find_and_act(self, session: Session, query: Query) -> tuple[Sequence[Record], int]:
        async with session.store() as store:
            records = await store.find(query) if query.ids else ()
            return records, await self.act(store, query)

    async def _act(self, session: Session, query: Query) -> int:
        async with session.store() as store:
            return await self.act(store, query)

    def _tell(self, query: Query, records: Sequence[Record], count: int) -> None:
        """Say what was done; an error when ids were given and it was done to none of them."""
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


async def _find(session: Session, query: Query) -> Sequence[Record]:
    async with session.store() as store:
        return await store.find(query)


def _unable(query: Query, records: Sequence[Record], statuses: Sequence[Status]) -> Iterator[str]:
    """Why it cannot be done to the ids that are left over."""
    found = {record.message.id: record.status for record in records}
    for id in query.ids:
        if id not in found:
            yield f"{id} is not in this outbox"
        elif found[id] not in statuses:
            yield f"{id} is {'in flight' if found[id] == 'sending' else found[id]}"


def _joined(*parts: str | Iterator[str] | Sequence[str]) -> str:
    return "; ".join(part for each in parts for part in ([each] if isinstance(each, str) else each))


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
