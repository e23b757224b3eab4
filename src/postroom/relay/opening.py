"""From settings to a relay on stores of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from postroom.config.values import Settings
from postroom.errors import ConfigError
from postroom.events import Listeners
from postroom.relay.relay import Relay
from postroom.relay.routes import Route
from postroom.relay.routing import routes_from
from postroom.stores import must_exist, open_store


@asynccontextmanager
async def relay_from(
    settings: Settings,
    *,
    routes: Sequence[Route] | None = None,
    name: str | None = None,
    listeners: Listeners | None = None,
) -> AsyncIterator[Relay]:
    """The relay that these settings describe, on two stores: one for messages, and one for its heartbeat, which must not wait
    for its turn behind them. Run it inside; afterwards the stores are closed.

    Raises SchemaMismatch, with the command to type, unless the tables are there; StoreUnavailable while the database is away;
    ConfigError where the settings name no store, or nowhere to go."""
    if not settings.store:
        raise ConfigError('A relay needs a store: set POSTROOM_STORE, or write store = "…" in postroom.toml.')
    routes = routes_from(settings) if routes is None else routes
    if not routes:
        raise ConfigError("A relay needs somewhere to go: set POSTROOM_TO, or write [[routes]] in postroom.toml.")
    must_exist(settings.store)
    called = name or f"{socket.gethostname()}:{os.getpid()}"
    async with (
        open_store(settings.store, tables=settings.tables, name=called) as store,
        open_store(settings.store, tables=settings.tables, name=called) as heartbeat,
    ):
        await store.schema.check()
        yield Relay(store, routes, config=settings.relay, name=name, heartbeat=heartbeat, listeners=listeners)
