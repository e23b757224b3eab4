"""What weakens a promise here: asked of the store and of every broker, and told with its remedy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

from postroom.contracts.inbox import DeadQuery, DeliveryState
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.errors import ConfigError, MissingDependency, PostroomError, StoreError
from postroom.ops.health import ready
from postroom.ops.remedies import Failure, remedies
from postroom.ops.status import StatusSnapshot, look
from postroom.ops.words import count, roughly
from postroom.transports import TRANSPORTS, known_scheme
from postroom.urls import redact

LAG_MAX = timedelta(minutes=5)
"""A message that is due and waits for longer, though relays live, is worth a look."""
DEAD_READ = 50
"""How many of the newest dead messages are read, to say what to do about their codes."""
CODES_TOLD = 3
"""For how many codes that is said."""


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
            state = await look(opened)
            found += judge(state, await _failures(opened) if state.dead else [])
            found += await _received(opened)
    except (StoreError, MissingDependency) as exc:
        found.append(str(exc))
    return Finding(role="store", url=redact(url), found=found)


async def _of_kind(store: Store, url: str) -> Sequence[str]:
    if not store.capabilities.durable:
        return [f"{redact(url)} is gone when its process ends: use a database, such as sqlite:///shop.db."]
    ask = _asker("stores", store.capabilities.name)
    return [] if ask is None else await ask(url)


async def _failures(store: Store) -> Sequence[Failure]:
    """The codes of the newest dead messages, each with its text."""
    dead = await store.ops.find(Query(status="dead", limit=DEAD_READ))
    return [(record.last_error_code, record.last_error) for record in dead]


async def _received(store: Store) -> Sequence[str]:
    """What is wrong with its inboxes; nothing where this kind of store can have none."""
    try:
        inbox = store.inbox
    except ConfigError:
        return []
    counts = await inbox.counts()
    if not any(outcomes.get("dead") for outcomes in counts.values()):
        return []
    dead = await inbox.dead(DeadQuery(requeued=False, limit=DEAD_READ))
    return judge_inbox(counts, [(each.code, each.error) for each in dead])


def judge(state: StatusSnapshot, failures: Sequence[Failure] = ()) -> list[str]:
    """Say what is wrong with an outbox in this state. *failures* are the codes of its dead messages, each with its text."""
    found = []
    health = ready(state)
    if state.waiting > 0 and not health.ok:
        wait = "waits" if state.waiting == 1 else "wait"
        found.append(f"{count(state.waiting, 'message')} {wait} to be sent. {health.why} Start one: `postroom relay`.")
    elif state.lag > LAG_MAX:
        found.append(
            f"The oldest due message has been waiting for {roughly(state.lag)} although relays are running: see why with "
            "`postroom list` and `postroom explain`."
        )
    if state.dead:
        behind = f", and {count(state.counts.parked, 'message')} behind" if state.counts.parked else ""
        are = "is" if state.dead == 1 else "are"
        found.append(
            f"{count(state.dead, 'message')} {are} dead{behind}: see `postroom list --status dead`, fix the cause, and "
            f"requeue or discard.{_about(failures)}"
        )
    return found


def _about(failures: Sequence[Failure]) -> str:
    """What to do about the most frequent codes, to stand behind a full stop."""
    return "".join(f" {code}: {remedy}." for code, remedy in remedies(failures, most=CODES_TOLD))


def judge_inbox(counts: Mapping[str, Mapping[DeliveryState, int]], failures: Sequence[Failure] = ()) -> list[str]:
    """Say what is wrong with inboxes that look like this, by consumer; and then what to do about the codes in *failures*."""
    found = [
        f"{count(dead, 'message')} of the inbox {consumer} {'is' if dead == 1 else 'are'} dead: see `postroom inbox list "
        f"--consumer {consumer}`, fix the cause, and requeue."
        for consumer, outcomes in sorted(counts.items())
        if (dead := outcomes.get("dead", 0))
    ]
    return [*found[:-1], f"{found[-1]}{_about(failures)}"] if found else []


def _asker(package: str, module: str) -> Callable[[str], Awaitable[Sequence[str]]] | None:
    """The `weaknesses` of this store or transport; None where it has none."""
    name = f"postroom.{package}.{module}"
    if not hasattr(import_module(name), "__path__") or find_spec(f"{name}.doctor") is None:
        return None
    found: Callable[[str], Awaitable[Sequence[str]]] = import_module(f"{name}.doctor").weaknesses
    return found
