"""`postroom explain`: why a message is where it is, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import click

from postroom.cli.options import store_options
from postroom.cli.output import printable, write, write_json
from postroom.cli.session import Session
from postroom.errors import ConfigError
from postroom.ops.explain import Explanation, explain_received
from postroom.ops.explain import explain as explain_message
from postroom.ops.lookup import id_or_head


@click.command(short_help="Say why a message is where it is, and what to do.")
@store_options
@click.argument("name", metavar="ID|KEY")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: id, status and sentences.")
def explain(session: Session, name: str, as_json: bool) -> None:
    """Say in plain sentences why the message with this ID is where it is: what became of it, or what it waits for, and
    what to do about it. The beginning of an id is enough. With a KEY, it explains the message that the others of that key
    wait for, or the last one. It also says what the inboxes in this database did with it.

    \b
    Examples:
      postroom explain 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11
      postroom explain order-7
      postroom explain --json 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11 | jq .status
    """
    id_, found, received = asyncio.run(_explain(session, name))
    if found.record is None and not received:
        raise click.ClickException(" ".join(found.sentences))
    sentences = [*(found.sentences if found.record else ()), *received]
    if as_json:
        status = found.record and found.record.status
        write_json({"id": str(id_), "status": status, "sentences": sentences})
        return
    for sentence in sentences:
        write(printable(sentence))


async def _explain(session: Session, name: str) -> tuple[UUID, Explanation, Sequence[str]]:
    async with session.store(reading=True) as store:
        id_ = await id_or_head(store, name)
        found = await explain_message(store, id_)
        received: Sequence[str] = []
        with suppress(ConfigError):  # not every store has an inbox
            received = await explain_received(store.inbox, id_)
    return id_, found, received
