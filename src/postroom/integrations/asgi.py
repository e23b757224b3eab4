"""A relay, and receptions, that live as long as an ASGI application does: FastAPI, Starlette, or whatever has a lifespan.

```python
app = FastAPI(lifespan=postroom_lifespan(store="postgresql://app@db/shop", to="kafka://broker:9092/orders"))
```

It needs no framework: `relaying` and `receiving` are async context managers, to be entered in a lifespan of your own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from postroom.config.load import load_here
from postroom.config.values import TableNames
from postroom.contracts.store import Store
from postroom.contracts.transport import Consumer
from postroom.errors import ConfigError
from postroom.events import Listeners
from postroom.inbox import Inbox, InboxWorker
from postroom.inbox.worker import CONCURRENCY_DEFAULT, consumer_for
from postroom.integrations.embedded import STOP_WITHIN, Embedded, Opening
from postroom.ops.health import Health, Readiness
from postroom.relay import relay_from, routes_from
from postroom.stores import must_exist, open_store
from postroom.telemetry.logs import EventLogger

__all__ = ["Embedded", "health_app", "postroom_lifespan", "receiving", "relaying"]

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[None]]
Event: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[
    [Mapping[str, Any], Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]
]


def postroom_lifespan(*parts: Embedded, **settings: Any) -> Lifespan:
    """What `FastAPI(lifespan=…)` and `Starlette(lifespan=…)` take: starts these parts with the application, and ends them with
    it. Without parts, one relay of these settings: `postroom_lifespan(store="postgresql://…", to="kafka://…")`."""
    if parts and settings:
        raise ConfigError(
            "postroom_lifespan takes parts, or the settings of one relay: give the settings to relaying(…)."
        )
    started = parts or (relaying(**settings),)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in started:
                await stack.enter_async_context(part)
            yield

    return lifespan


def relaying(
    *, config: Path | None = None, name: str | None = None, stop_within: timedelta = STOP_WITHIN, **settings: Any
) -> Relaying:
    """A relay for this process: `async with relaying(store="postgresql://…", to="kafka://…"):`.

    Every setting may be given by its name; the others come from the environment and from *config*, or `postroom.toml` in the
    current folder, as with `postroom relay`. `POSTROOM_ENABLED=false`, or `enabled = false` in `[relay]`, switches it off.
    All of them are read when it is entered."""
    return Relaying(config, settings, name=name, stop_within=stop_within)


class Relaying(Embedded):
    """See `relaying`."""

    def __init__(
        self, config: Path | None, given: Mapping[str, Any], *, name: str | None, stop_within: timedelta
    ) -> None:
        super().__init__("The relay", self._read, stop_within=stop_within)
        self._config, self._given, self._name = config, given, name
        self._asked: Store | None = None
        self._ready: Readiness | None = None

    def _read(self) -> Opening | None:
        settings = load_here(self._config, self._given, defaults={"enabled": True})
        if not settings.store:
            raise ConfigError('No store is named: give relaying(store="…"), or set POSTROOM_STORE.')
        self._asked = open_store(settings.store, tables=settings.tables)
        self._ready = Readiness(self._asked)
        if not settings.relay.enabled:
            return None
        if not routes_from(settings):
            raise ConfigError(
                'Nowhere to go: give relaying(to="…"), set POSTROOM_TO, or write [[routes]] in postroom.toml.'
            )
        # What it sends by is made again for each start: a publisher that was closed is not opened again.
        return lambda: relay_from(settings, name=self._name, listeners=Listeners(EventLogger()))

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        asked, self._asked, self._ready = self._asked, None, None
        if asked is not None:
            await asked.close()

    async def health(self) -> Health:
        """Whether the relay runs here, the store answers, and every lane has a live relay, whichever that is."""
        live = self.live()
        return await self._ready() if live.ok and self._ready else live


def receiving(
    inbox: Inbox,
    source: str,
    *,
    config: Path | None = None,
    group: str | None = None,
    prefetch: int | None = None,
    handlers: int = CONCURRENCY_DEFAULT,
    secrets: tuple[str, ...] = (),
    unsigned: bool = False,
    stop_within: timedelta = STOP_WITHIN,
    **settings: Any,
) -> Embedded:
    """A reception for this process, as `postroom consume` is one: `async with receiving(inbox, "kafka://broker:9092/orders"):`.
    The store comes from the settings, as in `relaying`; so do the secrets of webhooks, unless they are given here."""

    def read() -> Opening:
        found = load_here(config, settings)
        if not found.store:
            raise ConfigError('No store is named: give receiving(…, store="…"), or set POSTROOM_STORE.')
        # Both are made again for each start; here, so that what is wrong with them is told at once.
        consumer = partial(
            consumer_for, inbox, source, group=group, prefetch=prefetch, secrets=secrets, unsigned=unsigned,
            known_secrets=found.secrets,
        )  # fmt: skip
        consumer()
        open_store(found.store, tables=found.tables)
        return partial(_reception, inbox, found.store, found.tables, consumer, handlers)

    return Embedded(f"The inbox {inbox.name}", read, stop_within=stop_within)


@asynccontextmanager
async def _reception(
    inbox: Inbox, url: str, tables: TableNames, consumer: Callable[[], Consumer], handlers: int
) -> AsyncIterator[InboxWorker]:
    must_exist(url)
    async with open_store(url, tables=tables) as store:
        await store.schema.check()
        yield InboxWorker(inbox, store, consumer(), concurrency=handlers)


def health_app(*parts: Embedded) -> ASGIApp:
    """A small ASGI application for probes, to be mounted: `app.mount("/postroom", health_app(post))`. `…/livez` is 200 while
    all of the parts run, `…/readyz` while they are healthy; else 503, with the reason."""

    async def answer(scope: Mapping[str, Any], _receive: Any, send: Callable[[Event], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            return
        status, why = await _look(scope["path"].rpartition("/")[2], parts)
        body = json.dumps({"ok": status == 200, "why": why}).encode() + b"\n"
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return answer


async def _look(name: str, parts: tuple[Embedded, ...]) -> tuple[int, str]:
    match name:
        case "livez":
            found = [part.live() for part in parts]
        case "readyz":
            found = [await part.health() for part in parts]
        case _:
            return 404, "There are livez and readyz."
    bad = [each.why for each in found if not each.ok]
    return (503, " ".join(bad)) if bad else (200, " ".join(each.why for each in found))
