"""`postroom relay`: carries what was put to the outside world."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import click

from postroom import failpoints
from postroom.cli.notes import note
from postroom.cli.options import store_options
from postroom.cli.output import printable, write
from postroom.cli.progress import Progress
from postroom.cli.session import Session
from postroom.events import Listeners
from postroom.relay import Drained, Relay, routes_from
from postroom.stores import open_store
from postroom.urls import redact

LEFT_BEHIND = 3
"""The exit code of a drain that leaves something dead or parked."""


@click.command(short_help="Carry messages to a broker, a webhook or a function.")
@store_options
@click.option(
    "--to",
    metavar="URL",
    help="Where all goes: https://…, local://module:object. Default: POSTROOM_TO, or the routes in the file.",
)
@click.option(
    "--drain", is_flag=True, help="End once nothing can move without a person: 0 all done, 3 something is dead."
)
@click.option("--lease", metavar="TIME", help="How long a lane is mine without a word from me. Default: 120s.")
@click.option("--batch", type=int, metavar="N", help="How many messages one claim takes at most. Default: 32.")
@click.option("--concurrency", type=int, metavar="N", help="How many batches are in flight at once. Default: 4.")
@click.option("--poll", metavar="TIME", help="The longest wait between two looks when there is nothing. Default: 0.5s.")
@click.option("--send-timeout", metavar="TIME", help="How long a send may take. Default: 2500ms.")
@click.option("--max-attempts", type=int, metavar="N", help="Tries before a message is dead. Default: 6.")
@click.option(
    "--backoff",
    metavar="LIST",
    help="Waits between tries: 5,10,20 or exp:2s..10m, or a preset: worker, transfers. Default: 5,10,20,40,80,160.",
)
@click.option("--owner", metavar="NAME", help="A name for this relay, for people. Default: host and process id.")
def relay(session: Session, drain: bool, owner: str | None) -> None:
    """Carry messages from the store to where --to says, or each where the [[routes]] of postroom.toml say by its type: in
    order per key, at least once, through crashes. Several relays share the work. Ctrl-C or SIGTERM ends it cleanly: what
    was sent is settled, and the lanes are handed back.

    \b
    Examples:
      postroom relay --store sqlite:///shop.db --to https://shop.example/hooks
      postroom relay --store postgresql://app@db/shop --to local://shop.mail:send
      postroom relay --store sqlite:///shop.db --to local://shop.mail:send --drain
    """
    settings = session.settings
    if not settings.to and not settings.routes:
        raise click.UsageError("Nowhere to go: give --to URL, set POSTROOM_TO, or write [[routes]] in postroom.toml.")
    if settings.to and settings.routes:
        note("--to (or POSTROOM_TO) is given, so all goes there; the [[routes]] of the file are not used.")
    failpoints.arm(os.environ.get("POSTROOM_FAILPOINT"))
    # A handler that stands in the folder where the command is run is what people mean by local://module:object.
    sys.path.insert(0, "")
    left = asyncio.run(_relay(session, drain=drain, owner=owner))
    if left is not None and (left.dead or left.parked):
        write(f"{left.dead} dead, {left.parked} waiting behind them: see `postroom list --status dead`.")
        sys.exit(LEFT_BEHIND)


async def _relay(session: Session, *, drain: bool, owner: str | None) -> Drained | None:
    settings = session.settings
    async with session.store() as store, open_store(session.url, tables=settings.tables) as heartbeat:
        listeners = Listeners()
        progress = Progress()
        listeners.add(progress)
        carrier = Relay(
            store, routes_from(settings), config=settings.relay, name=owner, heartbeat=heartbeat, listeners=listeners
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, carrier.stop)
        for line in _introduced(carrier.owner, session):
            write(line)
        showing = asyncio.create_task(progress.show())
        try:
            if drain:
                return await carrier.drain()
            await carrier.run()
            return None
        finally:
            showing.cancel()
            write(progress.summary())


def _introduced(owner: str, session: Session) -> Iterator[str]:
    """Who carries from where to where: the first line, and with routes one more for each."""
    settings = session.settings
    if settings.to:
        yield f"relay {owner}: {session.shown_url} to {redact(settings.to)}"
        return
    yield f"relay {owner}: {session.shown_url} by {', '.join(route.name for route in settings.routes)}"
    for route in settings.routes:
        topic = f", topic {route.topic}" if route.topic else ""
        yield printable(f"  {route.name}: {' '.join(route.pattern)} to {redact(route.to)}{topic}")
