"""`postroom requeue` and `postroom discard`: a person names messages, is told what would be done, and what was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

import click

from postroom.cli.options import Command, store_options, whole_type
from postroom.cli.output import printable, write, write_json
from postroom.cli.rendering import write_records
from postroom.cli.session import Run, Session
from postroom.cli.stderr import say
from postroom.config.values import INBOX_RETENTION_DEFAULT
from postroom.contracts.ops import Progress, Query, Status
from postroom.contracts.store import Store
from postroom.durations import format_duration
from postroom.ops.lookup import bounds, ids_of
from postroom.ops.repair import DISCARD, REQUEUE, Deed, Done, Plan, Refusal, apply, plan_discard, plan_requeue
from postroom.ops.words import count

Found = TypeVar("Found")
TOLD_FROM = 1_000
"""Fewer are done before anybody could read how far it is."""
SHOWN_MAX = 50
"""How many messages a person is shown."""


def naming(deed: Deed) -> Callable[[Command], Command]:
    """Add --store and its kin, ID…, --status and its kin, --dry-run and --json. What names messages is for `_query`."""

    def decorated(command: Command) -> Command:
        for add in (
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object that says what was done."),
            click.option("--dry-run", is_flag=True, help="Show which messages it would be, and change nothing."),
            click.option("--key", metavar="KEY", help="With --status: only messages with this key."),
            click.option(
                "--type", callback=whole_type, metavar="TYPE", help="With --status: only messages of this type."
            ),
            click.option(
                "--status",
                type=click.Choice(deed.statuses),
                metavar="STATUS",
                help=f"Instead of ids: all that are {', '.join(deed.statuses[:-1])} or {deed.statuses[-1]}.",
            ),
            click.argument("names", metavar="[ID]...", nargs=-1),
            store_options,
        ):
            command = add(command)
        return command

    return decorated


@click.command(short_help="Put dead or failed messages back to pending.")
@naming(REQUEUE)
@click.option(
    "--force",
    is_flag=True,
    help=f"Also messages older than inboxes remember: {format_duration(INBOX_RETENTION_DEFAULT)}, or inbox_retention.",
)
def requeue(
    session: Session,
    names: Sequence[str],
    status: Status | None,
    type: str | None,
    key: str | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Put messages that are dead or failed back to pending, with no attempts made and the same id: the ones with these
    IDs, of which the beginning is enough, or all of a status. A key that is parked by a dead message moves again. A dead
    message may have been delivered, if an answer was lost: it then arrives twice, with the same id.

    \b
    Examples:
      postroom requeue 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11
      postroom requeue --status dead --type order.paid --dry-run
      postroom requeue --status failed --key order-7
    """
    _refuse_a_wrong_choice(REQUEUE, names, status=status, type=type, key=key)
    remembered = None if force else session.settings.inbox_retention
    with session.opened() as (run, store):
        query = _query(run, store, names, status, type, key)
        plan = _planned(
            run(plan_requeue(store, query, remembered=remembered, look=dry_run)), "add --force if that is right"
        )
        if dry_run:
            _preview(plan, as_json=as_json)
        else:
            _do(run, store, plan, as_json=as_json)


@click.command(short_help="Give up messages: they will not be sent.")
@naming(DISCARD)
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal to ask at.")
def discard(
    session: Session,
    names: Sequence[str],
    status: Status | None,
    type: str | None,
    key: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Give up messages that are dead, failed or pending: the ones with these IDs, of which the beginning is enough, or all
    of a status. They will not be sent, and nothing brings them back. A key that is parked by a dead message moves again
    without it.

    \b
    Examples:
      postroom discard 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11
      postroom discard --status dead --type order.paid --dry-run
      postroom discard --status pending --key order-7 --yes
    """
    _refuse_a_wrong_choice(DISCARD, names, status=status, type=type, key=key)
    asks = not dry_run and not yes
    if asks:
        _refuse_to_ask_nobody(as_json=as_json)
    with session.opened() as (run, store):
        query = _query(run, store, names, status, type, key)
        plan = _planned(run(plan_discard(store, query, look=dry_run, exactly=asks)))
        if dry_run:
            _preview(plan, as_json=as_json)
            return
        if asks and plan.able:
            _preview(plan)
            sys.stdout.flush()
            # Outside the event loop, so that Ctrl-C ends the question, and what is asked may take its time.
            if not click.confirm(f"Discard {count(len(plan.able), 'message')}? There is no way back.", err=True):
                raise click.ClickException("Nothing was discarded.")
        _do(run, store, plan, as_json=as_json)


def _refuse_to_ask_nobody(*, as_json: bool) -> None:
    if as_json:
        raise click.UsageError("--json does not ask: give --yes too, or --dry-run.")
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: give --yes to discard without asking.")


# ── which messages ──


def _refuse_a_wrong_choice(deed: Deed, names: Sequence[str], **others: str | None) -> None:
    """Raise a usage error when the options name no messages, name them twice, or give an id that cannot be one."""
    given = [f"--{name}" for name, value in others.items() if value is not None]
    if names and given:
        raise click.UsageError(f"Ids name whole messages; leave out {', '.join(given)}, or the ids.")
    if not names and others["status"] is None:
        raise click.UsageError(f"Say which messages: give their ids, or --status {'|'.join(deed.statuses)}.")
    for name in names:
        if bounds(name) is None:
            raise click.UsageError(f"{printable(name)!r} is not the id of a message, nor the beginning of one.")


def _query(
    run: Run, store: Store, names: Sequence[str], status: Status | None, type: str | None, key: str | None
) -> Query:
    ids: Sequence[UUID] = run(ids_of(store, names)) if names else ()
    return Query(ids=tuple(ids), status=status, type=type, key=key)


def _planned(found: Plan | Refusal, remedy: str = "") -> Plan:
    if isinstance(found, Refusal):
        raise click.ClickException("; ".join(filter(None, (found.why, remedy))))
    return found


# ── what is told ──


def _preview(plan: Plan, *, as_json: bool = False) -> None:
    """Show what would be done."""
    deed, able = plan.deed, plan.able
    if as_json:
        write_json({f"would_{deed.verb}": len(able), "left_alone": _left_alone(plan)})
        return
    if able:
        write_records(able[:SHOWN_MAX], payload=False)
        write("")
    cut = f" ({len(able) - SHOWN_MAX:,} are not shown)" if len(able) > SHOWN_MAX else ""
    write("; ".join([f"would {deed.verb} {count(len(able), 'message')}{cut}", *_reasons(plan)]))


def _do(run: Run, store: Store, plan: Plan, *, as_json: bool) -> None:
    """Do it, and say what was done; an error when ids were given and it was done to none of them."""
    with counting(plan.deed) as told:
        done = run(apply(store, plan, told=told))
    verb, named = plan.deed.done, len(plan.named)
    if as_json and (done.count or not named):
        write_json({verb: done.count, "left_alone": _left_alone(plan)})
    elif not named or done.is_all:
        write(f"{verb} {count(done.count, 'message')}")
    elif done.count == 0:
        raise click.ClickException("; ".join([f"Nothing was {verb}", *_unable(done)]))
    else:
        write("; ".join([f"{done.count:,} of {named:,} were {verb}", *_unable(done)]))


@contextmanager
def counting(deed: Deed) -> Iterator[Progress]:
    """Tell a person at a terminal how far it is; and a person who interrupts it, how far it came."""
    done = 0

    def told(number: int) -> None:
        nonlocal done
        done = number
        if sys.stderr.isatty() and number >= TOLD_FROM:
            click.echo(f"\r{deed.done} {count(number, 'message')} so far", err=True, nl=False)

    try:
        yield told
    except KeyboardInterrupt:
        say(f"{deed.done} {count(done, 'message')}, and stopped there: run it again for the rest")
        raise
    finally:
        if sys.stderr.isatty() and done >= TOLD_FROM:
            click.echo("\r\x1b[K", err=True, nl=False)


def _unable(done: Done) -> Iterator[str]:
    yield from _reasons(done.plan)
    if done.moved_meanwhile:
        yield "the outbox moved meanwhile: run it again"


def _reasons(plan: Plan) -> Iterator[str]:
    for id_, reason in plan.left_alone.items():
        yield f"{id_} is {reason}"


def _left_alone(plan: Plan) -> dict[str, str]:
    return {str(id_): reason for id_, reason in plan.left_alone.items()}
