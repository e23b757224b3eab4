"""`postroom inbox`: what was received, and what is dead."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import click

from postroom.cli.app import Commands
from postroom.cli.options import store_options, whole_type
from postroom.cli.output import Column, printable, write, write_json, write_table
from postroom.cli.session import Session
from postroom.contracts.inbox import DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.message import cloudevent, rfc3339
from postroom.ops.repair import Refusal, plan_redelivery, redeliver
from postroom.ops.words import count
from postroom.text import without_trace

LIMIT_DEFAULT = 50
OUTCOMES: tuple[DeliveryState, ...] = ("handled", "failing", "dead", "requeued")


@click.group("inbox", cls=Commands, short_help="See what was received, and let dead messages go again.")
def inbox() -> None:
    """What an inbox has handled, what is failing, and what is dead: deliveries that failed too often, or can never work.

    \b
    Examples:
      postroom inbox status --store sqlite:///shop.db
      postroom inbox list --consumer billing
      postroom inbox list --status failing
      postroom inbox requeue --consumer billing --code MAX_ATTEMPTS
    """


@inbox.command(short_help="Count messages by consumer and state.")
@store_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a consumer.")
def status(session: Session, as_json: bool) -> None:
    """Count what each consumer has handled, and what is failing, dead or requeued."""
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


async def _counts(session: Session) -> Mapping[str, Mapping[DeliveryState, int]]:
    async with session.store(with_inbox=True) as store:
        return await store.inbox.counts()


def _chosen(command: Any) -> Any:
    for add in (
        click.option("--code", metavar="CODE", help="Only those that were given up for this reason."),
        click.option("--key", metavar="KEY", help="Only messages with this key."),
        click.option("--type", callback=whole_type, metavar="TYPE", help="Only messages of this type."),
        click.option("--consumer", metavar="NAME", help="Only those of this consumer."),
    ):
        command = add(command)
    return command


@inbox.command("list", short_help="Show messages that are dead, failing or handled, newest last.")
@store_options
@_chosen
@click.option(
    "--status",
    "outcome",
    type=click.Choice(OUTCOMES),
    default="dead",
    metavar="STATUS",
    help="handled, failing, dead or requeued. Default: dead.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"At most N. Default: {LIMIT_DEFAULT}.")
@click.option("--payload", is_flag=True, help="Show payloads too. They may hold secrets.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_dead(
    session: Session, outcome: DeliveryState, limit: int | None, payload: bool, as_json: bool, **wanted: Any
) -> None:
    """Show messages that are dead, with the reason; or with --status those that are failing or handled. What they say is
    not shown unless --payload is given. Of a message that is not dead the broker has the type, the key and the payload:
    here are only its id, its tries and its last error."""
    limit = limit or (None if as_json else LIMIT_DEFAULT)
    if outcome not in KEPT:
        given = [f"--{name}" for name in ("type", "key", "code") if wanted[name]] + ["--payload"] * payload
        if given:
            raise click.UsageError(f"{given[0]} is not recorded for messages that are {outcome}: leave it out.")
        _list_known(session, KnownQuery(consumer=wanted["consumer"], outcome=outcome, limit=limit), as_json=as_json)
        return
    query = DeadQuery(**wanted, requeued=outcome == "requeued" or None, limit=limit)
    found = asyncio.run(_find(session, query))
    if as_json:
        for dead in found:
            write_json(_object(dead, payload=payload))
        return
    if not found:
        write("nothing is dead")
        return
    write_table(COLUMNS, [_cells(dead) for dead in found])
    if payload:
        write("")
        for dead in found:
            write(f"{dead.message.id} {printable(_text(dead), None)}")


KEPT = ("dead", "requeued")
"""Of these the whole delivery is kept."""


def _list_known(session: Session, query: KnownQuery, *, as_json: bool) -> None:
    found = asyncio.run(_known(session, query))
    if as_json:
        for known in found:
            write_json(_known_object(known))
    elif found:
        write_table(KNOWN_COLUMNS, [_known_cells(known) for known in found])
    else:
        write(f"nothing is {query.outcome}")


async def _known(session: Session, query: KnownQuery) -> Sequence[Known]:
    async with session.store(with_inbox=True) as store:
        return await store.inbox.known(query)


@inbox.command(short_help="Let dead messages be handled again.")
@store_options
@_chosen
@click.option("--dry-run", is_flag=True, help="Say how many it would be, and change nothing.")
@click.argument("ids", metavar="[ID]...", type=click.UUID, nargs=-1)
def requeue(session: Session, ids: tuple[UUID, ...], dry_run: bool, **wanted: Any) -> None:
    """Let dead messages be handled again, with no attempts made: those with these IDs, or all that the options name. A
    running `postroom consume` of that inbox takes them within seconds."""
    if not ids and not any(wanted.values()):
        raise click.UsageError("Say which messages: give their ids, or --consumer, --type, --key or --code.")
    number = asyncio.run(_requeue(session, DeadQuery(**wanted, ids=ids), dry_run=dry_run))
    if isinstance(number, Refusal):
        raise click.ClickException(number.why)
    write(f"{'would requeue' if dry_run else 'requeued'} {count(number, 'message')}")


async def _requeue(session: Session, query: DeadQuery, *, dry_run: bool) -> int | Refusal:
    async with session.store(with_inbox=True) as store:
        plan = await plan_redelivery(store.inbox, query, look=dry_run)
        if isinstance(plan, Refusal):
            return plan
        return len(plan.seen) if dry_run else await redeliver(store.inbox, plan)


COLUMNS = [
    Column("ID"),
    Column("CONSUMER", flexible=True),
    Column("TYPE", flexible=True),
    Column("KEY", flexible=True),
    Column("TRIES", right=True),
    Column("WHY", flexible=True),
]


KNOWN_COLUMNS = [
    Column("ID"),
    Column("CONSUMER", flexible=True),
    Column("SINCE"),
    Column("TRIES", right=True),
    Column("WHY", flexible=True),
]


def _known_cells(known: Known) -> list[str]:
    why = f"{known.code}: {without_trace(known.error or '')}" if known.code else ""
    return [str(known.id), known.consumer, rfc3339(known.at), str(known.attempts), why]


def _known_object(known: Known) -> dict[str, Any]:
    return {
        "id": str(known.id),
        "consumer": known.consumer,
        "status": known.outcome,
        "attempts": known.attempts,
        "at": rfc3339(known.at),
        "code": known.code,
        "error": known.error,
    }


def _cells(dead: DeadDelivery) -> list[str]:
    message, why = dead.message, f"{dead.code}: {without_trace(dead.error)}"
    return [str(message.id), dead.consumer, message.type, message.key or "", str(dead.attempts), why]


async def _find(session: Session, query: DeadQuery) -> Sequence[DeadDelivery]:
    async with session.store(with_inbox=True) as store:
        return await store.inbox.dead(query)


def _object(dead: DeadDelivery, *, payload: bool) -> dict[str, Any]:
    facts = {
        "id": str(dead.message.id),
        "consumer": dead.consumer,
        "type": dead.message.type,
        "key": dead.message.key,
        "topic": dead.topic,
        "attempts": dead.attempts,
        "code": dead.code,
        "error": dead.error,
        "dead_at": rfc3339(dead.dead_at),
        "requeued_at": dead.requeued_at and rfc3339(dead.requeued_at),
    }
    return facts | ({"event": cloudevent(dead.message, dead.source), "body": _text(dead)} if payload else {})


def _text(dead: DeadDelivery) -> str:
    return (dead.message.body or b"").decode(errors="replace")
