"""`postroom list`: the messages, newest last."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from postroom.cli.options import before_now, store_options, whole_type
from postroom.cli.output import write, write_json
from postroom.cli.records import as_json_object, write_records
from postroom.cli.session import Session
from postroom.contracts.ops import OPEN, SETTLED, Query, Record

LIMIT_DEFAULT = 50
"""How many messages a person is shown."""


@click.command("list", short_help="Show messages, newest last.")
@store_options
@click.option(
    "--status",
    type=click.Choice([*OPEN, *SETTLED]),
    metavar="STATUS",
    help=f"Only messages that are {', '.join((*OPEN, *SETTLED)[:-1])} or {SETTLED[-1]}.",
)
@click.option("--type", callback=whole_type, metavar="TYPE", help="Only messages of this type.")
@click.option("--key", metavar="KEY", help="Only messages with this key.")
@click.option("--since", callback=before_now, metavar="TIME", help="Only those written since: RFC 3339, or 1h ago.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Only the newest N. Default: {LIMIT_DEFAULT}; with --json, all.",
)
@click.option("--payload", is_flag=True, help="Show payloads and headers too. They may hold secrets.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_messages(session: Session, limit: int | None, payload: bool, as_json: bool, **wanted: Any) -> None:
    """Show messages, newest last. What a message says is not shown unless --payload is given.

    \b
    Examples:
      postroom list --store sqlite:///shop.db
      postroom list --status dead --since 1h
      postroom list --key order-7 --payload
      postroom list --json | jq -r 'select(.attempts > 1).id'
    """
    query = Query(**wanted, limit=limit)
    if as_json:
        records, _ = asyncio.run(_find(session, query))
        for record in records:
            write_json(as_json_object(record, payload=payload))
        return
    records, total = asyncio.run(_find(session, replace(query, limit=limit or LIMIT_DEFAULT)))
    if records:
        write_records(records, payload=payload)
    for line in _footnotes(records, total):
        write(line)


def _footnotes(records: Sequence[Record], total: str) -> Iterator[str]:
    if not records:
        yield "no messages"
    elif total or any(record.status == "dead" for record in records):
        yield ""
    if any(record.status == "dead" for record in records):
        yield "a dead message may have been delivered, if an answer was lost"
    if total:
        yield f"showing the newest {len(records):,} of {total}; --limit N shows more"


async def _find(session: Session, query: Query) -> tuple[Sequence[Record], str]:
    """The messages, and how many there are in all when the limit cut them off."""
    async with session.store(reading=True) as store:
        if query.limit is None:
            return await store.ops.find(query), ""
        # One more than asked for tells whether there are more.
        records = await store.ops.find(replace(query, limit=query.limit + 1))
        if len(records) <= query.limit:
            return records, ""
        if query != Query(status=query.status, limit=query.limit):
            # Counting these would read them all.
            return records[1:], f"more than {query.limit:,}"
        by_status = (await store.ops.counts()).by_status
        return records[1:], f"{sum(by_status.values()) if query.status is None else by_status[query.status]:,}"
