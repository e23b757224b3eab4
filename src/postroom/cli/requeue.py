"""`postroom requeue`: dead or failed messages go again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from postroom.cli.repair import Repair, messages
from postroom.cli.session import Session
from postroom.clock import utcnow
from postroom.contracts.ops import Progress, Query, Record
from postroom.contracts.store import Store
from postroom.durations import format_duration
from postroom.inbox.inbox import RETENTION_DEFAULT


async def _requeue(store: Store, query: Query, told: Progress) -> int:
    return await store.ops.requeue(query, told=told)


REQUEUE = Repair(verb="requeue", done="requeued", statuses=("dead", "failed"), act=_requeue)


REMEMBERED = RETENTION_DEFAULT
"""For so long an inbox knows a message again, unless it was told otherwise."""


def _refuse_the_forgotten(records: Sequence[Record]) -> None:
    """A receiver that has forgotten a message would handle it a second time."""
    old = [record for record in records if utcnow() - record.created_at > REMEMBERED]
    if old:
        are = "is" if len(old) == 1 else "are"
        raise click.ClickException(
            f"{messages(len(old))} of these, such as {old[0].message.id}, {are} older than inboxes remember "
            f"({format_duration(REMEMBERED)}): if it was delivered then, it would be handled again. Nothing was requeued; "
            "add --force if that is right."
        )


@click.command(short_help="Put dead or failed messages back to pending.")
@REQUEUE.options
@click.option("--force", is_flag=True, help=f"Also what is older than inboxes remember, {format_duration(REMEMBERED)}.")
def requeue(session: Session, dry_run: bool, force: bool, as_json: bool, **wanted: Any) -> None:
    """Put messages that are dead or failed back to pending, with no attempts made and the same id: the ones with these
    IDs, of which the beginning is enough, or all of a status. A key that is parked by a dead message moves again. A dead
    message may have been delivered, if an answer was lost: it then arrives twice, with the same id.

    \b
    Examples:
      postroom requeue 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11
      postroom requeue --status dead --type order.paid --dry-run
      postroom requeue --status failed --key order-7
    """
    query = REQUEUE.query(session, **wanted)
    if not force:
        _refuse_the_forgotten(REQUEUE.may(REQUEUE.look(session, query)))
    if dry_run:
        REQUEUE.preview(query, REQUEUE.look(session, query), as_json=as_json)
    else:
        REQUEUE.do(session, query, as_json=as_json)
