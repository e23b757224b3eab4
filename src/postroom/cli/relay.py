"""`postroom relay`: carries what was put to the outside world."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from postroom.cli.options import store_options
from postroom.cli.output import printable, write
from postroom.cli.progress import Tally, view_of
from postroom.cli.session import Session
from postroom.cli.signals import Ending
from postroom.cli.stderr import log_level, logging_lines, note
from postroom.contracts.store import Store
from postroom.events import Listeners
from postroom.ops.health import Health, Readiness
from postroom.ops.health_port import HealthPort
from postroom.ops.status import StatusSnapshot, look
from postroom.ops.words import count
from postroom.relay import Relay, relay_from, routes_from
from postroom.relay.relay import tune_gc
from postroom.telemetry import failpoints
from postroom.urls import HostPort, redact

GRACE = timedelta(seconds=30)
"""How long it may take, besides what is being sent, to settle that and to hand back its lanes."""
LEFT_BEHIND = 3
"""The exit code of a drain that leaves something dead or parked."""


@click.command(short_help="Carry messages to a broker, a webhook or a function.")
@store_options
@click.option(
    "--to",
    metavar="URL",
    help="Where everything goes: kafka://broker/topic, amqp://…, nats://…, redis://…, sqs://…, https://…, "
    "local://module:object. Default: POSTROOM_TO, or the routes in the file.",
)
@click.option(
    "--drain",
    is_flag=True,
    help="End once nothing can move without a person. Exit code 0: nothing is dead; 3: something is, or a route is shut. "
    "Stopped before, it says how many are left, and the code means the same.",
)
@click.option("--lease", metavar="TIME", help="How long a silent relay keeps its lanes. Default: 30s.")
@click.option(
    "--preset",
    metavar="NAME",
    help="Sets several options at once: worker (32 a batch, lease 120s, 6 tries) or kafka (500 a batch, 5 tries). "
    "An option given beside it wins.",
)
@click.option(
    "--batch",
    type=int,
    metavar="N",
    help="How many messages one claim takes at most. Default: 32, and more while they go quickly.",
)
@click.option("--batch-max", type=int, metavar="N", help="How large a batch grows by itself. Default: 4096.")
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
@click.option(
    "--health",
    metavar="[HOST:]PORT",
    help="Answer /livez and /readyz there: ready means that every lane has a live relay. Default: no port.",
)
@log_level
def relay(session: Session, drain: bool, owner: str | None, log_level: str) -> None:
    """Carry messages from the store to where --to says, or each where the [[routes]] of postroom.toml say by its type: in
    order per key, at least once, through crashes. Several relays share the work. Ctrl-C or SIGTERM ends it cleanly: what
    was sent is settled, and the lanes are handed back. A second signal ends it at once, with exit code 130 or 143.

    \b
    Examples:
      postroom relay --store sqlite:///shop.db --to https://shop.example/hooks
      postroom relay --store postgresql://app@db/shop --to local://shop.mail:send
      postroom relay --store sqlite:///shop.db --to local://shop.mail:send --drain
      postroom relay --config shop.toml --health 8081
    """
    settings = session.settings
    if not settings.to and not settings.routes:
        raise click.UsageError("Nowhere to go: give --to URL, set POSTROOM_TO, or write [[routes]] in postroom.toml.")
    if settings.to and settings.routes:
        note("--to (or POSTROOM_TO) is given, so all goes there; the [[routes]] of the file are not used.")
    failpoints.arm(os.environ.get("POSTROOM_FAILPOINT"))
    # A handler that stands in the folder where the command is run is what people mean by local://module:object.
    sys.path.insert(0, "")
    tune_gc()
    with logging_lines(log_level, scrub=session.scrub), Ending(settings.relay.send_timeout + GRACE) as ending:
        left, tally = asyncio.run(_relay(session, ending, drain=drain, owner=owner))
    if left is not None:
        sys.exit(_judged(left, tally))


def _judged(left: StatusSnapshot, tally: Tally) -> int:
    """Say what a drain leaves behind; its exit code. Open ones that wait for no person mean that it was stopped."""
    shut = tally.shut if left.waiting > 0 else []
    if left.waiting > 0:
        write(f"stopped before all was drained: {count(left.waiting, 'message')} left")
    for sentence in shut:
        write(printable(sentence))
    parked = left.counts.parked
    if left.dead or parked:
        write(f"{left.dead:,} dead, {parked:,} waiting behind them: see `postroom list --status dead`.")
    return LEFT_BEHIND if left.dead or parked or shut else 0


async def _relay(
    session: Session, ending: Ending, *, drain: bool, owner: str | None
) -> tuple[StatusSnapshot | None, Tally]:
    """Run until stopped, or drained; what is in the store after a drain, and what was done."""
    settings = session.settings
    # What it shows, and answers at its health port, must not wait behind its work: a store of its own.
    async with AsyncExitStack() as open_ones:
        watching = await open_ones.enter_async_context(session.store())
        routes = routes_from(settings)
        tally = Tally(draining=drain, brokers=len({id(route.to) for route in routes}))
        view = view_of(tally, watching)
        relaying = relay_from(settings, routes=routes, name=owner, listeners=Listeners(tally, view))
        carrier = await open_ones.enter_async_context(relaying)
        _stop_on_signals(carrier, tally, ending)
        live = _Liveness(tally)
        async with _health_port(settings.relay.health, live, watching) as port:
            for line in _introduced(carrier.owner, session, port):
                write(line)
            sys.stdout.flush()
            live.running = running = asyncio.ensure_future(carrier.drain() if drain else carrier.run())
            async with _beside(view.run()):
                await asyncio.wait([running])
            if running.exception() is None or any(tally.totals.numbers):
                write(tally.summary())
            await running
        return await look(watching) if drain else None, tally


def _stop_on_signals(carrier: Relay, tally: Tally, ending: Ending) -> None:
    def stop() -> None:
        tally.stopping = True
        carrier.stop()

    ending.listen(stop)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do this meanwhile, and end it after. What goes wrong with it is no harm: it only shows."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass
class _Liveness:
    """A relay lives until it ends: broken, or because it was told to. One with a route that is shut lives, and says so."""

    tally: Tally
    running: asyncio.Future[Any] | None = None

    def __call__(self) -> Health:
        if self.running is None or not self.running.done():
            return Health(ok=True, why=printable(" ".join(["The relay runs.", *map(_sentence, self.tally.shut)])))
        return Health(ok=False, why="The relay has ended.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


@asynccontextmanager
async def _health_port(address: HostPort | None, live: _Liveness, store: Store) -> AsyncIterator[HostPort | None]:
    """Where the health port listens, if there shall be one."""
    if address is None:
        yield None
        return
    async with HealthPort(address, live=live, ready=Readiness(store)) as port:
        yield port.address


def _introduced(owner: str, session: Session, port: HostPort | None) -> Iterator[str]:
    """Who carries from where to where: the first line, and with routes one more for each."""
    settings = session.settings
    if settings.to:
        yield printable(f"relay {owner}: {session.shown_url} to {redact(settings.to)}")
    else:
        yield f"relay {owner}: {session.shown_url} by {', '.join(route.name for route in settings.routes)}"
        for route in settings.routes:
            topic = f", topic {route.topic}" if route.topic else ""
            yield printable(f"  {route.name}: {' '.join(route.pattern)} to {redact(route.to)}{topic}")
    if port is not None:
        yield f"  health: http://{port}/livez and /readyz"
