"""`postroom explain`: why a message is where it is, and what to do."""

from __future__ import annotations

import asyncio
from uuid import UUID

import click

from postroom.cli.options import store_options
from postroom.cli.output import printable, write, write_json
from postroom.cli.session import Session
from postroom.ops.explain import Explanation
from postroom.ops.explain import explain as explain_message


@click.command(short_help="Say why a message is where it is, and what to do.")
@store_options
@click.argument("id", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: id, status and sentences.")
def explain(session: Session, id: UUID, as_json: bool) -> None:
    """Say in plain sentences why the message with this ID is where it is: what became of it, or what it waits for, and
    what to do about it.

    \b
    Examples:
      postroom explain 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11
      postroom explain --json 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11 | jq .status
    """
    found = asyncio.run(_explain(session, id))
    if found.record is None:
        raise click.ClickException(" ".join(found.sentences))
    if as_json:
        write_json({"id": str(id), "status": found.record.status, "sentences": list(found.sentences)})
        return
    for sentence in found.sentences:
        write(printable(sentence))


async def _explain(session: Session, id: UUID) -> Explanation:
    async with session.store() as store:
        return await explain_message(store, id)
