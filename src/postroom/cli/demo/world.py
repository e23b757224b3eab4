"""The world of the story: shop, letterbox, broker and consumers in this process, the relay in another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import click

from postroom.cli.demo.books import Books, read
from postroom.cli.demo.faults import Orders
from postroom.cli.demo.letterbox import Letterbox
from postroom.cli.demo.place import Place
from postroom.cli.demo.process import RelayProcess
from postroom.cli.demo.shop import CreditRefused, Order, Shop, order_of
from postroom.cli.demo.stage import Stage
from postroom.cli.demo.telling import Line, changes
from postroom.clock import monotonic
from postroom.contracts.store import Store
from postroom.contracts.transport import Envelope, Publisher, Sent
from postroom.message import Message

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 120.0
"""A slow machine takes its time; one that takes longer for one step has another problem."""
PUBLISH = timedelta(seconds=20)
HOOK_FAILS = 2


@dataclass
class World:
    """All that the story acts with."""

    place: Place
    stage: Stage
    to: str | None
    """The broker's URL; None: in this process."""
    store: Store
    inbox: Store
    shop: Shop
    eye: Any
    """A connection of its own, to read with."""
    run: str
    broker: Publisher
    box: Letterbox = field(init=False)
    relay: RelayProcess | None = None
    receptions: list[asyncio.Task[Any]] = field(default_factory=list)
    hook_fails: int = HOOK_FAILS
    _before: Books | None = None
    _watcher: Callable[[Books], None] | None = None

    def __post_init__(self) -> None:
        self.box = Letterbox({f"/{self.run}/broker": self.publish, f"/{self.run}/webhook": self._hook})

    async def look(self) -> Books:
        """How the books stand; what is new is told and shown. Raises when something of the world broke."""
        for task in self.receptions:
            if task.done():
                task.result()
        if self.relay is not None:
            self.relay.check()
        books = await self.read()
        for line in changes(self._before, books):
            self.stage.tell(line)
        self._before = books
        if self._watcher is not None:
            self._watcher(books)
        self.stage.show(books)
        return books

    @contextmanager
    def watching(self, watcher: Callable[[Books], None]) -> Iterator[None]:
        """Call this with the books at each look, while this lasts."""
        self._watcher = watcher
        try:
            yield
        finally:
            self._watcher = None

    async def read(self) -> Books:
        """The books, read anew from the stores."""
        return await read(self.place, self.eye, self.store, self.inbox.inbox)

    async def until(self, happened: Callable[[Books], bool], what: str) -> Books:
        """Wait until the books stand like this; how they stand then."""
        end = monotonic() + PATIENCE_SECONDS
        while not happened(books := await self.look()):
            if monotonic() > end:
                raise click.ClickException(
                    f"The demo waited {PATIENCE_SECONDS:.0f} s for this, and it did not happen: {what}; on a very slow machine "
                    "try again, else please report it"
                )
            await asyncio.sleep(LOOK_SECONDS)
        return books

    async def pause(self, moments: float = 1) -> None:
        """Let somebody who watches see it."""
        end = monotonic() + moments * self.stage.pace
        await self.look()
        while monotonic() < end:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def take(self, order: Order, *, tell: bool = False) -> None:
        """Somebody orders."""
        try:
            await asyncio.to_thread(self.shop.take, order, tell=tell)
        except CreditRefused as refused:
            self.stage.tell(Line("shop", f"INSERT + put, ROLLBACK: {refused}", order, "magenta"))
        else:
            twice = ", put for the webhook" if tell else ""
            self.stage.tell(Line("shop", f"INSERT + put{twice}, COMMIT", order, "bold"))
        await self.pause()

    async def start_relay(self, name: str, **faults: int) -> RelayProcess:
        """A relay begins, in a process of its own."""
        orders = Orders(
            name=name, store=self.place.url, broker=self.to, port=self.box.port, run=self.run, pace=self.stage.pace, **faults
        )  # fmt: skip
        self.relay = relay = await RelayProcess.start(orders)
        await self.until(lambda _: "ready" in relay.heard, f"{name} starts")
        self.stage.tell(Line("relay", f"{name} runs, process {relay.pid}", style="cyan"))
        return relay

    async def publish(self, message: Message) -> int:
        """Put a message into the broker, by hand or for the letterbox."""
        (outcome,) = await self.broker.publish([Envelope(message)], timeout=PUBLISH)
        return 201 if isinstance(outcome, Sent) else 503

    async def _hook(self, message: Message) -> int:
        """The customer's webhook, which is not always well."""
        if self.hook_fails:
            self.hook_fails -= 1
            self.stage.tell(Line("webhook", "answers 503: it is tried again later", order_of(message), "yellow"))
            return 503
        self.stage.tell(Line("webhook", "answers 200", order_of(message), "green"))
        return 200
