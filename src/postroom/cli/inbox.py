"""`postroom inbox`: what was received, and what is parked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import click

from postroom.cli.options import store_options
from postroom.cli.output import Column, write, write_json, write_table
from postroom.cli.repair import messages
from postroom.cli.session import Session
from postroom.inbox_store import Outcome, Parked, ParkedQuery
from postroom.message import cloudevent, rfc3339

LIMIT_DEFAULT = 50


@click.group("inbox", short_help="See what was received, and let parked messages go again.")
def inbox() -> None:
    """What an inbox has handled, what is failing, and what is parked: deliveries that failed too often, or can never work.

    \b
    Examples:
      postroom inbox status --store sqlite:///shop.db
      postroom inbox list --consumer billing
      postroom inbox requeue --consumer billing --code MAX_ATTEMPTS
    """


@inbox.command(short_help="Count messages by consumer and state.")
@store_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a consumer.")
def status(session: Session, as_json: bool) -> None:
    """Count what each consumer has handled, and what is failing, parked or requeued."""
    counts = asyncio.run(_counts(session))
    if as_json:
        for consumer, outcomes in sorted(counts.items()):
            write_json({"consumer": consumer, **{word: outcomes.get(word, 0) for word in OUTCOMES}})
        return
    if not counts:
        write("nothing was received")
        return
    rows = [
        [consumer, *(f"{outcomes.get(word, 0):,}" for word in OUTCOMES)]
        for consumer, outcomes in sorted(counts.items())
    ]
    write_table([Column("CONSUMER", flexible=True), *(Column(word.upper(), right=True) for word in OUTCOMES)], rows)


OUTCOMES: tuple[Outcome, ...] = ("handled", "failing", "dead", "requeued")


async def _counts(session: Session) -> Mapping[str, Mapping[Outcome, int]]:
    async with session.inbox_store() as store:
        return await store.counts()


def _chosen(command: Any) -> Any:
    for add in (
        click.option("--code", metavar="CODE", help="Only those that were given up for this reason."),
        click.option("--key", metavar="KEY", help="Only messages with this key."),
        click.option("--type", metavar="TYPE", help="Only messages of this type."),
        click.option("--consumer", metavar="NAME", help="Only those of this consumer."),
    ):
        command = add(command)
    return command


@inbox.command("list", short_help="Show parked messages, newest last.")
@store_options
@_chosen
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"At most N. Default: {LIMIT_DEFAULT}.")
@click.option("--payload", is_flag=True, help="Show payloads too. They may hold secrets.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_parked(session: Session, limit: int | None, payload: bool, as_json: bool, **wanted: Any) -> None:
    """Show parked messages, with the reason. What they say is not shown unless --payload is given."""
    query = ParkedQuery(**wanted, limit=limit or (None if as_json else LIMIT_DEFAULT))
    found = asyncio.run(_find(session, query))
    if as_json:
        for parked in found:
            write_json(_object(parked, payload=payload))
        return
    if not found:
        write("nothing is parked")
        return
    write_table(COLUMNS, [_cells(parked) for parked in found])
    if payload:
        write("")
        for parked in found:
            write(f"{parked.message.id} {_text(parked)}")


@inbox.command(short_help="Let parked messages be handled again.")
@store_options
@_chosen
@click.option("--dry-run", is_flag=True, help="Say how many it would be, and change nothing.")
@click.argument("ids", metavar="[ID]...", type=click.UUID, nargs=-1)
def requeue(session: Session, ids: tuple[UUID, ...], dry_run: bool, **wanted: Any) -> None:
    """Let parked messages be handled again, with no attempts made: those with these IDs, or all that the options name. A
    running `postroom consume` of that inbox takes them within seconds."""
    if not ids and not any(wanted.values()):
        raise click.UsageError("Say which messages: give their ids, or --consumer, --type, --key or --code.")
    query = ParkedQuery(**wanted, ids=ids)
    if dry_run:
        found = asyncio.run(_find(session, replace(query, requeued=False)))
        write(f"would requeue {messages(len(found))}")
        return
    count = asyncio.run(_requeue(session, query))
    if ids and not count:
        raise click.ClickException("Nothing was requeued: none of these ids is parked here.")
    write(f"requeued {messages(count)}")


COLUMNS = [
    Column("ID"),
    Column("CONSUMER", flexible=True),
    Column("TYPE", flexible=True),
    Column("KEY", flexible=True),
    Column("TRIES", right=True),
    Column("WHY", flexible=True),
]


def _cells(parked: Parked) -> list[str]:
    message, why = parked.message, f"{parked.code}: {parked.error}"
    return [str(message.id), parked.consumer, message.type, message.key or "", str(parked.attempts), why]


async def _find(session: Session, query: ParkedQuery) -> Sequence[Parked]:
    async with session.inbox_store() as store:
        return await store.parked(query)


async def _requeue(session: Session, query: ParkedQuery) -> int:
    async with session.inbox_store() as store:
        return await store.requeue(query)


def _object(parked: Parked, *, payload: bool) -> dict[str, Any]:
    facts = {
        "id": str(parked.message.id),
        "consumer": parked.consumer,
        "type": parked.message.type,
        "key": parked.message.key,
        "topic": parked.topic,
        "attempts": parked.attempts,
        "code": parked.code,
        "error": parked.error,
        "dead_at": rfc3339(parked.dead_at),
        "requeued_at": parked.requeued_at and rfc3339(parked.requeued_at),
    }
    return facts | ({"event": cloudevent(parked.message, parked.source), "body": _text(parked)} if payload else {})


def _text(parked: Parked) -> str:
    return (parked.message.body or b"").decode(errors="replace")
