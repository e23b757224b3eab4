"""`postroom consume`: receives messages from a broker, and lets an inbox handle each once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import click

from postroom import failpoints, names
from postroom.cli.options import store_options
from postroom.cli.output import write
from postroom.cli.session import Session
from postroom.durations import parse_duration
from postroom.errors import ConfigError, TransportUnavailable
from postroom.inbox import Inbox, Reception
from postroom.inbox.opening import consumer_for
from postroom.inbox.reception import AWAY_FIRST, AWAY_MOST, CONCURRENCY_DEFAULT, Tally
from postroom.relay.wakeup import Backoff
from postroom.urls import redact

log = logging.getLogger(__name__)
PARKED = 3
"""The exit code of a run that parked something."""


@click.command(short_help="Receive messages, and handle each once.")
@store_options
@click.option("--from", "source", metavar="URL", required=True, help="The broker, such as nats://broker:4222/ORDERS.")
@click.option("--app", metavar="MODULE:INBOX", required=True, help="Your Inbox, such as shop.billing:inbox.")
@click.option("--group", metavar="NAME", help="Receivers of one group share the messages. Default: the inbox's name.")
@click.option(
    "--prefetch", type=click.IntRange(1, 100_000), metavar="N", help="Messages in hand. Default: the broker's."
)
@click.option(
    "--handlers",
    type=click.IntRange(1, 1_000),
    default=CONCURRENCY_DEFAULT,
    metavar="N",
    help=f"How many handlers run at once. Default: {CONCURRENCY_DEFAULT}.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="TEXT",
    envvar="POSTROOM_SECRETS",
    help="For webhooks: what senders sign with, whsec_…; give two while it changes.",
)
@click.option(
    "--until-idle", metavar="TIME", help="End once nothing has come for so long. Exit code 3: something is parked."
)
def consume(session: Session, source: str, app: str, until_idle: str | None, **options: Any) -> None:
    """Receive messages from a broker and hand each to the handler that your inbox has for its type: its effects and the row
    that says so are one commit, so that a message delivered twice is handled once. What fails is tried again; what fails too
    often is parked, see `postroom inbox list`. Ctrl-C or SIGTERM ends it cleanly: what is being handled is finished, the rest
    goes back to the broker. A broker that is away is waited for; with --until-idle, not at the start.

    \b
    Examples:
      postroom consume --from nats://broker:4222/ORDERS --app shop.billing:inbox
      postroom consume --from sqs://eu-central-1/orders.fifo --app shop:inbox
      postroom consume --from nats://nats/ORDERS --app shop:inbox --until-idle 5s
    """
    session.brokers.append(source)
    failpoints.arm(os.environ.get("POSTROOM_FAILPOINT"))
    # A module that stands in the folder where the command is run is what people mean by module:inbox.
    sys.path.insert(0, "")
    inbox = load(app)
    quiet = None if until_idle is None else parse_duration(until_idle)
    tally = asyncio.run(_consume(session, inbox, source, quiet, **options))
    write(_summary(tally))
    if until_idle and tally.done["parked"]:
        write("something is parked: see `postroom inbox list`.")
        sys.exit(PARKED)


async def _consume(
    session: Session, inbox: Inbox, source: str, until_idle: timedelta | None, *, handlers: int, **options: Any
) -> Tally:
    async with session.inbox_store() as store:

        async def opened() -> Reception:
            consumer = consumer_for(inbox, source, **options)
            reception = Reception(inbox, store, consumer, concurrency=handlers)
            try:
                await reception.open()
            except BaseException:
                await consumer.close()
                raise
            return reception

        # A job that ends by itself says at once that there is no broker; a service waits for it.
        reception = await (_patiently(opened) if until_idle is None else opened())
        if reception is None:
            return Tally()
        _on_signals(reception.stop)
        write(f"inbox {inbox.name}: {redact(source)} to {session.shown_url}, {', '.join(inbox.types) or 'no handlers'}")
        sys.stdout.flush()
        return await reception.run(until_idle=until_idle)


async def _patiently(opened: Callable[[], Awaitable[Reception]]) -> Reception | None:
    """What was opened, however long the broker is away; None when it was told to end before."""
    stopping, wait = asyncio.Event(), Backoff(first=AWAY_FIRST, most=AWAY_MOST)
    _on_signals(stopping.set)
    while not stopping.is_set():
        try:
            return await opened()
        except TransportUnavailable as exc:
            log.warning("Nothing can be received: %s", exc)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), wait.next())
    return None


def _on_signals(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def load(name: str) -> Inbox:
    """The inbox that `module:inbox` names, or ConfigError."""
    found = names.load(name, shown=name, usage="module:inbox, as in shop.billing:inbox")
    if not isinstance(found, Inbox):
        raise ConfigError(f"{name} is a {type(found).__name__}, no Inbox: name the object that has your handlers.")
    return found


def _summary(tally: Tally) -> str:
    """What became of what came: received 120, handled 117, known 2, parked 1."""
    words = ("handled", "known", "skipped", "failed", "parked")
    said = [f"{word} {tally.done[word]:,}" for word in words if tally.done[word]]
    return ", ".join([f"received {tally.received:,}", *said])
