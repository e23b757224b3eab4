"""`postroom demo`: a small shop, so that a newcomer sees what an outbox and an inbox are for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from postroom.cli.session import Session
from postroom.cli.stderr import say
from postroom.demo.books import facts_of, plant, problems
from postroom.demo.database import Database
from postroom.demo.stage import Stage
from postroom.demo.story import play
from postroom.demo.world import opened
from postroom.errors import ConfigError
from postroom.transports import known_scheme
from postroom.urls import redact

PLANT, PACE = "POSTROOM_DEMO_PLANT", "POSTROOM_DEMO_PACE"
"""For tests. A breach of promise that is done behind Postroom's back, so that the proof can be seen to fail; and how many
seconds a moment takes on a terminal."""


@click.command(short_help="Watch orders and their messages travel, through the faults that strike them.")
@click.option("--plain", is_flag=True, help="Plain lines, as fast as they come: what a pipe gets anyway.")
@click.option(
    "--store",
    metavar="URL",
    help="Play on this database, in tables of its own: sqlite:///shop.db or postgresql://user@host/database. "
    "Default: a SQLite file that is gone afterwards.",
)
@click.option(
    "--to",
    metavar="URL",
    help="Send by this broker: kafka://broker/topic, a topic that is there. Default: one in this process.",
)
@click.option("--clean", is_flag=True, help="Only drop the tables that a killed demo left behind in --store.")
@click.pass_context
def demo(context: click.Context, plain: bool, store: str | None, to: str | None, clean: bool) -> None:
    """A small shop takes orders. Each is a row and a message, in one transaction; a relay, in a process of its own, carries
    the messages to a broker; billing and shipping receive them, and handle each once.

    Then things go wrong, on purpose: an order is rolled back, a webhook fails, the relay is killed with -9, a message is
    delivered twice, another is poison and parks its customer until a person releases it. On a terminal that takes about half
    a minute, and you see each message go from put over sending and published to handled.

    At the end a table is computed from the stores: as many effects as orders, nothing lost, nothing twice, the order kept.
    Exit code 0 if so, else 1.

    Nothing but Python is needed. Your data is not touched: with --store it makes tables of its own, postroom_demo_…, and drops
    them at the end, also after Ctrl-C. POSTROOM_STORE and POSTROOM_TO are not read.

    \b
    Examples:
      postroom demo
      postroom demo --plain > demo.log
      postroom demo --store postgresql://app@db/shop --to kafka://broker:9092/demo
    """
    session: Session = context.ensure_object(Session)
    session.brokers += [url for url in (store, to) if url]
    if to is not None and known_scheme(to) != "kafka":
        raise ConfigError(
            f"The demo cannot play over {redact(to)}: give --to kafka://broker:9092/topic, or leave it out."
        )
    if clean:
        if store is None:
            raise click.UsageError("--clean needs --store: without it, nothing is left behind.")
        asyncio.run(_clean(store))
        return
    with _place(store) as (url, told):
        try:
            wrong = asyncio.run(_demo(Database(url, told), to, _stage(plain=plain)))
        except asyncio.CancelledError:
            raise click.Abort from None
    if wrong:
        raise click.ClickException(f"That must never happen, please report it: {wrong}")


async def _clean(store: str) -> None:
    async with Database(store, say) as database:
        await database.clean()


async def _demo(database: Database, to: str | None, stage: Stage) -> str:
    """Play, and prove; what is wrong."""
    if (task := asyncio.current_task()) is not None:
        # A stop, or a terminal that is closed, ends it as Ctrl-C does: the tables and the relay go first.
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with database, opened(database, to, stage) as world:
        await play(world)
        if what := os.environ.get(PLANT):
            plant(database, what)
        facts = facts_of(await world.read())
        stage.prove(facts)
        return problems(facts)


@contextmanager
def _place(store: str | None) -> Iterator[tuple[str, Callable[[str], object]]]:
    """The URL to play on, and who is told of what was removed there: nobody, where the place itself is gone afterwards."""
    if store is not None:
        yield store, say
        return
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        yield f"sqlite:///{Path(folder) / 'shop.db'}", str


def _stage(*, plain: bool) -> Stage:
    if plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return Stage()
    from postroom.demo.live import LiveStage

    stage = LiveStage()
    stage.pace = float(os.environ.get(PACE, stage.pace))
    return stage
