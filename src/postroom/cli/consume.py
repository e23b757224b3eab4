"""`postroom consume`: receives messages from a broker, and lets an inbox handle each once."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

import click
from click.core import ParameterSource

from postroom.cli.options import store_options
from postroom.cli.output import printable, write
from postroom.cli.session import Session
from postroom.cli.signals import Ending
from postroom.cli.stderr import log_level, logging_lines, note
from postroom.config import objects
from postroom.durations import format_duration, parse_duration
from postroom.errors import ConfigError
from postroom.inbox import Inbox, InboxWorker
from postroom.inbox.worker import CONCURRENCY_DEFAULT, GRACE_DEFAULT, Tally, consumer_for
from postroom.telemetry import failpoints
from postroom.urls import redact

PARKED = 3
"""The exit code of a run that gave something up."""


@click.command(short_help="Receive messages, and handle each once.")
@store_options
@click.option("--from", "source", metavar="URL", required=True, help="The broker, such as nats://broker:4222/ORDERS.")
@click.option("--app", metavar="MODULE:INBOX", required=True, help="Your Inbox, such as shop.billing:inbox.")
@click.option("--group", metavar="NAME", help="Receivers of one group share the messages. Default: the inbox's name.")
@click.option(
    "--prefetch",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Messages in flight at once. Default: the broker's.",
)
@click.option(
    "--handlers",
    type=click.IntRange(1, 1_000),
    default=CONCURRENCY_DEFAULT,
    metavar="N",
    help=f"How many handlers run at once. Default: {CONCURRENCY_DEFAULT}.",
)
@click.option(
    "--secrets-file",
    metavar="FILE",
    help="For webhooks: the file with what senders sign with, whsec_…, one a line; give two while it changes. "
    "Default: POSTROOM_SECRETS_FILE, or secrets_file in the settings.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="TEXT",
    envvar="POSTROOM_SECRETS",
    help="The secret itself. Every user of this machine can read it in the list of processes: rather use the file.",
)
@click.option(
    "--unsigned",
    is_flag=True,
    help="For webhooks: accept messages without a signature. Anyone who reaches the port can send.",
)
@click.option(
    "--grace",
    metavar="TIME",
    default=format_duration(GRACE_DEFAULT),
    help="How long handlers may run on when it is told to end; then they are abandoned. Default: 30s.",
)
@click.option(
    "--until-idle", metavar="TIME", help="End once nothing has come for so long. Exit code 3: something is dead."
)
@log_level
def consume(
    session: Session, source: str, app: str, until_idle: str | None, grace: str, log_level: str, **options: Any
) -> None:
    """Receive messages from a broker and hand each to the handler that your inbox has for its type: its effects and the row
    that says so are one commit, so that a message delivered twice is handled once. What fails is tried again; what fails too
    often is dead, see `postroom inbox list`. Ctrl-C or SIGTERM ends it cleanly: what is being handled is finished, the rest
    goes back to the broker. What still runs after --grace is abandoned: rolled back, and not acknowledged. A second signal
    ends it at once, with exit code 130 or 143. A broker that is away is waited for; with --until-idle, not at the start.

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
    with logging_lines(log_level, scrub=session.scrub):
        inbox = load(app)
        quiet = None if until_idle is None else parse_duration(until_idle)
        wait = parse_duration(grace)
        with Ending(wait) as ending:
            tally = asyncio.run(_consume(session, inbox, source, quiet, grace=wait, ending=ending, **options))
    write(_summary(tally))
    if until_idle and tally.done["dead"]:
        write("something is dead: see `postroom inbox list`.")
        sys.exit(PARKED)


async def _consume(
    session: Session,
    inbox: Inbox,
    source: str,
    until_idle: timedelta | None,
    *,
    group: str | None,
    prefetch: int | None,
    handlers: int,
    grace: timedelta,
    ending: Ending,
    secrets: tuple[str, ...],
    unsigned: bool,
) -> Tally:
    consumer = consumer_for(
        inbox,
        source,
        group=group,
        prefetch=prefetch,
        secrets=secrets,
        unsigned=unsigned,
        known_secrets=session.settings.secrets,
    )
    _warn_of_open_secrets(click.get_current_context())
    async with session.store(with_inbox=True) as store:
        reception = InboxWorker(inbox, store, consumer, concurrency=handlers, grace=grace)
        ending.listen(reception.stop)
        # A job that ends by itself says at once that there is no broker; a service waits for it.
        if await reception.open(patient=until_idle is None):
            types = ", ".join(inbox.types) or "no handlers"
            write(printable(f"inbox {inbox.name}: {redact(source)} to {session.shown_url}, {types}"))
            sys.stdout.flush()
        return await reception.run(until_idle=until_idle)


def _warn_of_open_secrets(context: click.Context) -> None:
    if context.get_parameter_source("secrets") is ParameterSource.COMMANDLINE:
        note("--secret can be read by every user of this machine, in the list of processes: use --secrets-file.")


def load(name: str) -> Inbox:
    """The inbox that `module:inbox` names, or ConfigError."""
    found = objects.load(name, shown=name, usage="module:inbox, as in shop.billing:inbox")
    if not isinstance(found, Inbox):
        raise ConfigError(f"{name} is a {type(found).__name__}, not an Inbox: name the object that has your handlers.")
    return found


def _summary(tally: Tally) -> str:
    """What became of what came: received 120, handled 117, known 2, dead 1."""
    words = ("handled", "known", "skipped", "failed", "dead", "abandoned")
    said = [f"{word} {tally.done[word]:,}" for word in words if tally.done[word]]
    return ", ".join([f"received {tally.received:,}", *said])
