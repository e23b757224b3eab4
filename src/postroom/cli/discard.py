"""`postroom discard`: messages that shall not be sent."""

from __future__ import annotations

import sys
from typing import Any

import click

from postroom.cli.repair import Repair, messages
from postroom.cli.session import Session
from postroom.contracts.ops import Progress, Query
from postroom.contracts.store import Store


async def _discard(store: Store, query: Query, told: Progress) -> int:
    return await store.ops.discard(query, told=told)


DISCARD = Repair(verb="discard", done="discarded", statuses=("dead", "failed", "pending"), act=_discard)


@click.command(short_help="Give up messages: they will not be sent.")
@DISCARD.options
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal to ask at.")
def discard(session: Session, dry_run: bool, yes: bool, as_json: bool, **wanted: Any) -> None:
    """Give up messages that are dead, failed or pending: the ones with these IDs, of which the beginning is enough, or all
    of a status. They will not be
    sent, and nothing brings them back. A key that is parked by a dead message moves again without it.

    \b
    Examples:
      postroom discard 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11
      postroom discard --status dead --type order.paid --dry-run
      postroom discard --status pending --key order-7 --yes
    """
    query = DISCARD.query(session, **wanted)
    if dry_run:
        DISCARD.preview(query, DISCARD.look(session, query), as_json=as_json)
    elif yes:
        DISCARD.do(session, query, as_json=as_json)
    elif as_json:
        raise click.UsageError("With --json nobody is asked: give --yes too, or --dry-run.")
    else:
        _ask_and_do(session, query)


def _ask_and_do(session: Session, query: Query) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: give --yes to discard without asking.")
    records = DISCARD.look(session, query)
    if able := DISCARD.may(records):
        DISCARD.preview(query, records)
        sys.stdout.flush()
        if not click.confirm(f"Discard {messages(len(able))}? There is no way back.", err=True):
            raise click.ClickException("Nothing was discarded.")
    DISCARD.do_to(session, query, records)
