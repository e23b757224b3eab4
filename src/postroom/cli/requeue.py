"""`postroom requeue`: dead or failed messages go again."""

from __future__ import annotations

from typing import Any

import click

from postroom.cli.repair import Repair
from postroom.cli.session import Session
from postroom.store import Query, Store


async def _requeue(store: Store, query: Query) -> int:
    return await store.requeue(query)


REQUEUE = Repair(verb="requeue", done="requeued", statuses=("dead", "failed"), act=_requeue)


@click.command(short_help="Put dead or failed messages back to pending.")
@REQUEUE.options
def requeue(session: Session, dry_run: bool, **wanted: Any) -> None:
    """Put messages that are dead or failed back to pending, with no attempts made and the same id: the ones with these
    IDs, or all of a status. A key that is parked by a dead message moves again. A dead message may have been delivered, if
    an answer was lost: it then arrives twice, with the same id.

    \b
    Examples:
      postroom requeue 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11
      postroom requeue --status dead --type order.paid --dry-run
      postroom requeue --status failed --key order-7
    """
    query = REQUEUE.query(**wanted)
    if dry_run:
        REQUEUE.preview(query, REQUEUE.look(session, query))
    else:
        REQUEUE.do(session, query)
