"""What weakens a promise here: asked of the store and of every broker, and told with its remedy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

from postroom.clock import utcnow
from postroom.contracts.inbox import DeliveryState
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import OPEN, Counts
from postroom.contracts.store import Store
from postroom.errors import ConfigError, MissingDependency, PostroomError, StoreError
from postroom.ops.health import ready
from postroom.ops.words import count, roughly
from postroom.transports import TRANSPORTS, known_scheme
from postroom.urls import redact

LAG_MAX = timedelta(minutes=5)
"""A message that is due and waits for longer, though relays live, is worth a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was asked, and what was found there."""

    role: Literal["store", "to", "from"]
    url: str
    """As it may be shown."""
    found: Sequence[str] = ()
    """A sentence each, with the remedy."""
    asked: bool = True
    """Is anything known that could be asked of it?"""


async def examine_broker(role: Literal["to", "from"], url: str) -> Finding:
    """What weakens a promise at this broker. One that is away is a finding; ConfigError only for a URL of no transport."""
    module, shown = TRANSPORTS[known_scheme(url)].module, redact(url)
    try:
        ask = _asker("transports", module)
        return (
            Finding(role=role, url=shown, asked=False)
            if ask is None
            else Finding(role=role, url=shown, found=await ask(url))
        )
    except PostroomError as exc:
        return Finding(role=role, url=shown, found=[str(exc)])


async def examine_store(url: str, store: AbstractAsyncContextManager[Store]) -> Finding:
    """What weakens a promise at this store. One that is away, or has not the tables, is a finding."""
    found: list[str] = []
    try:
        async with store as opened:
            found += await _of_kind(opened, url)
            found += judge(await opened.ops.counts(), await opened.lanes.all(), await opened.lanes.relays(), utcnow())
            found += judge_inbox(await _received(opened))
    except (StoreError, MissingDependency) as exc:
        found.append(str(exc))
    return Finding(role="store", url=redact(url), found=found)


async def _of_kind(store: Store, url: str) -> Sequence[str]:
    if not store.capabilities.durable:
        return [f"{redact(url)} is gone when its process ends: use a database, such as sqlite:///shop.db."]
    ask = _asker("stores", store.capabilities.name)
    return [] if ask is None else await ask(url)


async def _received(store: Store) -> Mapping[str, Mapping[DeliveryState, int]]:
    """What its inboxes hold; nothing where this kind of store can have none."""
    try:
        return await store.inbox.counts()
    except ConfigError:
        return {}


def judge(counts: Counts, lanes: Sequence[Lane], relays: Sequence[RelayInfo], now: datetime) -> list[str]:
    """What is wrong with an outbox that looks like this."""
    found = []
    waiting = sum(counts.by_status.get(status, 0) for status in OPEN) - counts.parked
    health = ready(lanes, relays, now)
    if waiting > 0 and not health.ok:
        wait = "waits" if waiting == 1 else "wait"
        found.append(f"{count(waiting, 'message')} {wait} to be sent. {health.why} Start one: `postroom relay`.")
    elif counts.lag > LAG_MAX:
        found.append(
            f"The oldest message that is due waits since {roughly(counts.lag)}, though relays live: see why with "
            "`postroom list` and `postroom explain`."
        )
    if dead := counts.by_status.get("dead", 0):
        behind = f", and {count(counts.parked, 'message')} behind" if counts.parked else ""
        are = "is" if dead == 1 else "are"
        found.append(
            f"{count(dead, 'message')} {are} dead{behind}: see `postroom list --status dead`, mend the cause, and requeue or "
            "discard."
        )
    return found


def judge_inbox(counts: Mapping[str, Mapping[DeliveryState, int]]) -> list[str]:
    """What is wrong with inboxes that look like this, by consumer."""
    return [
        f"{count(dead, 'message')} of the inbox {consumer} {'is' if dead == 1 else 'are'} dead: see `postroom inbox list "
        f"--consumer {consumer}`, mend the cause, and requeue."
        for consumer, outcomes in sorted(counts.items())
        if (dead := outcomes.get("dead", 0))
    ]


def _asker(package: str, module: str) -> Callable[[str], Awaitable[Sequence[str]]] | None:
    """The `weaknesses` of this store or transport; None where it has none."""
    name = f"postroom.{package}.{module}"
    if not hasattr(import_module(name), "__path__") or find_spec(f"{name}.doctor") is None:
        return None
    found: Callable[[str], Awaitable[Sequence[str]]] = import_module(f"{name}.doctor").weaknesses
    return found
