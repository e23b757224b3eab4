"""Opening the world, and putting all of it away again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

from postroom.cli.demo.books import EFFECTS
from postroom.cli.demo.consumers import reception_of
from postroom.cli.demo.letterbox import SOURCE
from postroom.cli.demo.place import TABLES, Place
from postroom.cli.demo.shop import Shop
from postroom.cli.demo.stage import Stage
from postroom.cli.demo.tables import tables_of
from postroom.cli.demo.world import World
from postroom.contracts.transport import TransportOptions
from postroom.inbox import InboxWorker
from postroom.stores import open_store
from postroom.transports import honoured, open_publisher


@asynccontextmanager
async def opened(place: Place, to: str | None, stage: Stage) -> AsyncIterator[World]:
    """The world, for as long as this lasts; nothing of it is left after."""
    run = secrets.token_hex(3)
    url = to or f"memory://postroom-demo-{run}/orders"
    async with AsyncExitStack() as stack:
        # Before any table is made: a wrong URL, or a package that is missing, is told at once.
        broker = open_publisher(url, TransportOptions(source=SOURCE).only(honoured(url)))
        inbox = open_store(place.url, tables=TABLES)
        receptions = [reception_of(name, place, inbox, broker=url, run=run) for name in EFFECTS]
        await stack.enter_async_context(tables_of(place))
        store = await stack.enter_async_context(place.open())
        await stack.enter_async_context(inbox)
        shop = stack.enter_context(closing(Shop(place, run)))
        eye = stack.enter_context(closing(place.connect()))
        world = World(place, stage, to, store, inbox, shop, eye, run, broker)
        stack.push_async_callback(broker.close)
        await broker.open()
        stack.callback(world.box.close)
        await world.box.open()
        stack.push_async_callback(_stop, world, receptions)
        for reception in receptions:
            await reception.open()
            world.receptions.append(asyncio.create_task(reception.run()))
        yield world


async def _stop(world: World, receptions: list[InboxWorker]) -> None:
    """The relay first: nothing comes after that."""
    if world.relay is not None:
        await world.relay.stop()
    for reception in receptions:
        reception.stop()
    await asyncio.gather(*world.receptions, return_exceptions=True)
