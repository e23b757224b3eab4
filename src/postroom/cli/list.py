"""`postroom list`: the messages, newest last."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from postroom.cli.options import before_now, store_options, whole_type
from postroom.cli.output import printable, write, write_json
from postroom.cli.rendering import as_json_object, write_records
from postroom.cli.session import Session
from postroom.contracts.ops import OPEN, SETTLED, Query
from postroom.ops.lookup import Listing, newest
from postroom.ops.remedies import remedies

LIMIT_DEFAULT = 50
"""How many messages a person is shown."""
CODES_TOLD = 3
"""Of how many codes it is said what to do about them."""


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
@click.option("--since", callback=before_now, metavar="TIME", help="Only messages written since: RFC 3339, or 1h ago.")
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
        for record in asyncio.run(_find(session, query)).records:
            write_json(as_json_object(record, payload=payload))
        return
    found = asyncio.run(_find(session, replace(query, limit=limit or LIMIT_DEFAULT)))
    if found.records:
        write_records(found.records, payload=payload)
    for line in _footnotes(found):
        write(line)


async def _find(session: Session, query: Query) -> Listing:
    async with session.store(reading=True) as store:
        return await newest(store, query)


def _footnotes(found: Listing) -> Iterator[str]:
    dead = [record for record in found.records if record.status == "dead"]
    if not found.records:
        yield "no messages"
    elif found.is_cut or dead:
        yield ""
    if dead:
        yield "a dead message may have been delivered, if an answer was lost"
    for code, remedy in remedies([(record.last_error_code, record.last_error) for record in dead], most=CODES_TOLD):
        yield f"{printable(str(code))}: {remedy}"
    if found.is_cut:
        shown = f"{len(found.records):,}"
        total = f"more than {shown}" if found.total is None else f"{found.total:,}"
        yield f"showing the newest {shown} of {total}; --limit N shows more"
