"""The world of the story: shop, broker, webhook and consumers in this process, the relay in another."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Publisher, Sent, TransportOptions
from postroom.demo.books import Books, read
from postroom.demo.database import Database, DemoFailed
from postroom.demo.relay import SOURCE, Orders, unpacked
from postroom.demo.shop import EFFECTS, CreditRefused, Deliveries, Order, Shop, order_of, worker_of
from postroom.demo.stage import Line, Stage, changes
from postroom.inbox import InboxWorker
from postroom.message import Message
from postroom.transports import honoured, open_publisher

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 120.0
"""A slow machine takes its time; one that takes longer for one step has another problem."""
PUBLISH = timedelta(seconds=20)
HOOK_FAILS = 2
STOP_SECONDS = 20.0
"""How long a relay may take to hand back its lanes; then it is killed."""
HEARD_MAX = 50


@asynccontextmanager
async def opened(database: Database, to: str | None, stage: Stage) -> AsyncIterator[World]:
    """The world, for as long as this lasts; nothing of it is left after. *to* is the broker's URL; None: in this process."""
    run = secrets.token_hex(3)
    url = to or f"memory://postroom-demo-{run}/orders"
    async with AsyncExitStack() as stack:
        # Before any table is made: a wrong URL, or a package that is missing, is told at once.
        broker, noted = open_publisher(url, TransportOptions(source=SOURCE).only(honoured(url))), Deliveries()
        workers = [worker_of(name, database, broker=url, run=run, deliveries=noted) for name in EFFECTS]
        await stack.enter_async_context(database.tables())
        world = World(database, stage, to, Shop(database, run), broker, noted)
        stack.push_async_callback(broker.close)
        await broker.open()
        stack.push_async_callback(world.stop, workers)
        for worker in workers:
            await worker.open()
            world.receiving.append(asyncio.create_task(worker.run()))
        yield world


class World:
    """All that the story acts with."""

    def __init__(
        self, database: Database, stage: Stage, to: str | None, shop: Shop, broker: Publisher, deliveries: Deliveries
    ) -> None:
        self.database, self.stage = database, stage
        self.hook_fails = HOOK_FAILS
        self.receiving: list[asyncio.Task[Any]] = []
        self._to, self._shop, self._broker, self._deliveries = to, shop, broker, deliveries
        self._relay: RelayProcess | None = None
        self._before: Books | None = None
        self._watcher: Callable[[Books], None] | None = None

    async def look(self) -> Books:
        """How the books stand; what is new is told and shown. Raises when something of the world broke."""
        for task in self.receiving:
            if task.done():
                task.result()
        if self._relay is not None:
            self._relay.check()
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
        """The books, read from the stores now."""
        return await read(self.database, self._deliveries)

    async def until(self, happened: Callable[[Books], bool], what: str) -> Books:
        """Wait until the books stand like this; how they stand then."""
        end = monotonic() + PATIENCE_SECONDS
        while not happened(books := await self.look()):
            if monotonic() > end:
                raise DemoFailed(
                    f"The demo waited {PATIENCE_SECONDS:.0f} s for this, and it did not happen: {what}; on a very slow machine "
                    "try again, else please report it."
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
            await asyncio.to_thread(self._shop.take, order, tell=tell)
        except CreditRefused as refused:
            self.stage.tell(Line("shop", f"INSERT + put, ROLLBACK: {refused}", order, "magenta"))
        else:
            twice = ", put for the webhook" if tell else ""
            self.stage.tell(Line("shop", f"INSERT + put{twice}, COMMIT", order, "bold"))
        await self.pause()

    async def start_relay(self, name: str, **faults: int) -> RelayProcess:
        """A relay begins, in a process of its own."""
        orders = Orders(name=name, store=self.database.url, broker=self._to, pace=self.stage.pace, **faults)
        self._relay = relay = await RelayProcess.start(orders, {"broker": self.publish, "webhook": self._hook})
        await self.until(lambda _: "ready" in relay.heard, f"{name} starts")
        self.stage.tell(Line("relay", f"{name} runs, process {relay.pid}", style="cyan"))
        return relay

    async def publish(self, message: Message) -> int:
        """Put a message into the broker, by hand or for the relay."""
        (outcome,) = await self._broker.publish([Envelope(message)], timeout=PUBLISH)
        return 201 if isinstance(outcome, Sent) else 503

    async def _hook(self, message: Message) -> int:
        """The customer's webhook, which is not always well."""
        if self.hook_fails:
            self.hook_fails -= 1
            self.stage.tell(Line("webhook", "answers 503: it is tried again later", order_of(message), "yellow"))
            return 503
        self.stage.tell(Line("webhook", "answers 200", order_of(message), "green"))
        return 200

    async def stop(self, workers: list[InboxWorker]) -> None:
        """End the relay first: nothing comes after that. Then the consumers."""
        if self._relay is not None:
            await self._relay.stop()
        for worker in workers:
            worker.stop()
        await asyncio.gather(*self.receiving, return_exceptions=True)


class RelayProcess:
    """A relay in a process of its own: started, listened to, answered, killed."""

    def __init__(
        self, process: asyncio.subprocess.Process, name: str, takes: dict[str, Callable[[Message], Awaitable[int]]]
    ) -> None:
        self.name, self.pid = name, process.pid
        self.heard: deque[str] = deque(maxlen=HEARD_MAX)
        """Its last lines."""
        self._process, self._takes = process, takes
        self._tasks = {asyncio.create_task(self._listen())}
        self._wanted = False

    @classmethod
    async def start(cls, orders: Orders, takes: dict[str, Callable[[Message], Awaitable[int]]]) -> RelayProcess:
        """A new one. In a session of its own, so that Ctrl-C at the terminal reaches the director alone."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "postroom.demo.relay",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=_environment(),
        )  # fmt: skip
        started = cls(process, orders.name, takes)
        await started.tell(**asdict(orders))
        return started

    async def tell(self, **said: object) -> None:
        """Change its orders, or answer it."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(json.dumps(said).encode() + b"\n")
                await self._process.stdin.drain()

    def check(self) -> None:
        """Raise when it ended, and nobody asked it to."""
        if self._process.returncode is not None and not self._wanted:
            last = self.heard[-1] if self.heard else f"exit code {self._process.returncode}"
            raise DemoFailed(f"The relay of the demo ended by itself: {last.rstrip('.')}.")

    async def kill(self) -> None:
        """kill -9: no goodbye."""
        await self._end(SIGKILL)

    async def stop(self) -> None:
        """Ask it to end, and wait; in the end it is gone in any case."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._end(SIGTERM)
        finally:
            await self._end(SIGKILL)
            for task in self._tasks:
                task.cancel()

    async def _end(self, signal: Signals) -> None:
        self._wanted = True
        with suppress(ProcessLookupError):
            self._process.send_signal(signal)
        await self._process.wait()

    async def _listen(self) -> None:
        if self._process.stdout is None:
            return
        async for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:  # a traceback: no word to us, but what to show when it ends
                self.heard.append(line.decode(errors="replace").strip())
                continue
            if "letter" in said:
                self._tasks.add(task := asyncio.create_task(self._answer(said)))
                task.add_done_callback(self._tasks.discard)
            else:
                self.heard.append(said["said"])

    async def _answer(self, said: dict[str, Any]) -> None:
        status = await self._takes[said["to"]](unpacked(said))
        await self.tell(letter=said["letter"], status=status)


def _environment() -> dict[str, str]:
    """Ours, and from where this process imports: not what stands in the folder by chance."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path)}
