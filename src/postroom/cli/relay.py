"""`postroom relay`: carries what was put to the outside world."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import click

from postroom import failpoints
from postroom.cli.options import store_options
from postroom.cli.output import write
from postroom.cli.progress import Progress
from postroom.cli.session import Session
from postroom.events import Listeners
from postroom.relay import Drained, Relay, Route
from postroom.stores import open_store
from postroom.transports import open_transport
from postroom.urls import redact

LEFT_BEHIND = 3
"""The exit code of a drain that leaves something dead or parked."""


@click.command(short_help="Carry messages to a broker, a webhook or a function.")
@store_options
@click.option(
    "--to",
    metavar="URL",
    help="Where to: kafka://broker/topic, https://…, local://module:object. Default: POSTROOM_TO, or the file.",
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
    "--backoff", metavar="LIST", help="Waits between tries: 5,10,20 or exp:2s..10m. Default: 5,10,20,40,80,160."
)
@click.option("--owner", metavar="NAME", help="A name for this relay, for people. Default: host and process id.")
def relay(session: Session, drain: bool, owner: str | None) -> None:
    """Carry messages from the store to where --to says: in order per key, at least once, through crashes. Several relays
    share the work. Ctrl-C or SIGTERM ends it cleanly: what was sent is settled, and the lanes are handed back.

    \b
    Examples:
      postroom relay --store sqlite:///shop.db --to https://shop.example/hooks
      postroom relay --store postgresql://app@db/shop --to local://shop.mail:send
      postroom relay --store sqlite:///shop.db --to local://shop.mail:send --drain
    """
    if not session.settings.to:
        raise click.UsageError('Nowhere to go: give --to URL, set POSTROOM_TO, or write to = "…" in postroom.toml.')
    failpoints.arm(os.environ.get("POSTROOM_FAILPOINT"))
    # A handler that stands in the folder where the command is run is what people mean by local://module:object.
    sys.path.insert(0, "")
    left = asyncio.run(_relay(session, session.settings.to, drain=drain, owner=owner))
    if left is not None and (left.dead or left.parked):
        write(f"{left.dead} dead, {left.parked} waiting behind them: see `postroom list --status dead`.")
        sys.exit(LEFT_BEHIND)


async def _relay(session: Session, to: str, *, drain: bool, owner: str | None) -> Drained | None:
    settings = session.settings
    async with session.store() as store, open_store(session.url, tables=settings.tables) as heartbeat:
        listeners = Listeners()
        progress = Progress()
        listeners.add(progress)
        route = Route(to=open_transport(to), retry=settings.relay.retry)
        carrier = Relay(store, [route], config=settings.relay, name=owner, heartbeat=heartbeat, listeners=listeners)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, carrier.stop)
        write(f"relay {carrier.owner}: {session.shown_url} to {redact(to)}")
        showing = asyncio.create_task(progress.show())
        try:
            if drain:
                return await carrier.drain()
            await carrier.run()
            return None
        finally:
            showing.cancel()
            write(progress.summary())
