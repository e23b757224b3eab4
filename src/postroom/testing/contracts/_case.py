"""What every case of a store's contract stands on.

Cases speak only the contract: they put, take, claim and settle, and look at what comes back. Times are given, so that
nothing sleeps; each method that reads a clock also has a case without one. Expected values are written by hand.

What these suites cannot catch: clocks that differ between hosts, disks that lie about having written, partitions that
last longer than a lease. Those are for the crash and zombie tests of the whole relay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Claim, Published, Retry, Settled, Settlement, Unsent, Verdict
from postroom.contracts.store import Store
from postroom.errors import TransportRefused, TransportUnavailable
from postroom.message import Message

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""Later than any message is written while the suite runs, so that `now=NOON` sees them all as due."""
LEASE = MINUTE
MAX_ATTEMPTS = 3
HOSTILE_TEXTS = (
    ("a zero \x00 in it", r"a zero \x00 in it"),
    ("half a pair \ud800", r"half a pair \ud800"),
    ("\x1b[2J in colour", r"\x1b[2J in colour"),
    ("x" * 1_000_000, "x" * 512),
    ("\ud800" * 1_000, r"\ud800" * 85 + "\\…"),
    ("two\nlines", "two\nlines"),
    ("𝄞 ☃ ключ", "𝄞 ☃ ключ"),
    ("", ""),
)
"""What errors may say, and what a store keeps of it: a text that could not be kept would never be settled."""

Case = TypeVar("Case", bound=Callable[..., Any])


def needs(capability: str) -> Callable[[Case], Case]:
    """Run this case only on a store that declares the capability: a skip always names one."""

    def mark(case: Case) -> Case:
        case.needs = capability  # type: ignore[attr-defined]  # read by `StoreCase._skip_what_it_does_not_declare`
        return case

    return mark


def lost(attempts: int) -> Retry | Buried:
    """The rule for messages lost with their relay, as a relay would give it."""
    if attempts >= MAX_ATTEMPTS:
        return Buried("CRASH_LOOP", "lost with its relay too often")
    return Retry(30 * SECOND, "LEASE_LOST", "lost with its relay")


def a_message(**only_what_matters: Any) -> Message:
    """A valid message: give only the fields that the case is about."""
    fields = {"type": "order.paid", "data": {"amount": 12}} | only_what_matters
    if "body" in only_what_matters:
        del fields["data"]
    return Message(fields.pop("type"), **fields)


async def refused_by(opening: Awaitable[object]) -> TransportRefused:
    """What was said to a wrong URL."""
    try:
        await opening
    except TransportRefused as exc:
        return exc
    except TransportUnavailable as exc:
        raise AssertionError(f"the relay would wait for it forever: {exc}") from exc
    raise AssertionError("nothing was said")


async def put(store: Store, *keys: str | None) -> list[int]:
    """Put a message for each key, one transaction each; their seqs in order."""
    messages = [a_message(key=key) for key in keys]
    for message in messages:
        await store.outbox.put([message])
    found = await store.ops.find(Query(ids=[message.id for message in messages]))
    return [record.seq for record in found]


class Relay:
    """A relay as the store sees it: takes lanes, claims, settles. It sends nothing."""

    def __init__(self, store: Store, owner: str) -> None:
        self.store, self.owner = store, owner
        self.lanes: dict[int, int] = {}

    async def take(self, *, limit: int = 10_000, now: datetime = NOON) -> dict[int, int]:
        taken = await self.store.lanes.take(self.owner, limit=limit, lease=LEASE, lost=lost, now=now)
        self.lanes |= {lane.lane: lane.epoch for lane in taken}
        return self.lanes

    async def claim(self, *, limit: int = 100, now: datetime = NOON) -> list[Claim]:
        return list(await self.store.outbox.claim(self.owner, self.lanes, limit=limit, now=now))

    async def seqs(self, *, limit: int = 100, now: datetime = NOON) -> list[int]:
        """Claim, and say what came: every seq, in order."""
        return seqs(await self.claim(limit=limit, now=now))

    async def settle(self, claims: Sequence[Claim], verdict: Verdict | None = None, *, now: datetime = NOON) -> Settled:
        """Settle all of it the same way; the answer that all of them got."""
        given = verdict or Published()
        settlements = [
            Settlement(claim, {claimed.seq: given for claimed in claim.messages}, isinstance(given, Published))
            for claim in claims
        ]
        answers = set((await self.store.outbox.settle(settlements, now=now)).values())
        assert len(answers) == 1, f"expected one answer for all claims, got {answers}"
        return answers.pop()

    async def settle_each(
        self, claims: Sequence[Claim], verdicts: Mapping[int, Verdict], *, now: datetime = NOON
    ) -> None:
        """Settle by seq; what is not named is unsent."""
        answers = await self.store.outbox.settle([Settlement(claim, verdicts) for claim in claims], now=now)
        assert set(answers.values()) == {"settled"}

    async def drain(self, *, limit: int = 100, now: datetime = NOON, rounds: int = 1000) -> list[int]:
        """Claim and publish until nothing comes; every seq in the order it came."""
        came: list[int] = []
        for _ in range(rounds):
            claims = await self.claim(limit=limit, now=now)
            if not claims:
                return came
            came += [claimed.seq for claim in claims for claimed in claim.messages]
            await self.settle(claims, now=now)
        raise AssertionError(f"the store still gives messages after {rounds} claims")


async def a_relay(store: Store, owner: str = "relay-a", *, now: datetime = NOON) -> Relay:
    """A relay that has taken every lane it could."""
    relay = Relay(store, owner)
    await relay.take(now=now)
    return relay


async def lanes_of(relay: Relay, keys: Sequence[str]) -> dict[str, int]:
    """The lane of each key, whatever hash the store uses: put a message for each, claim them, drop them."""
    messages = [a_message(key=key) for key in keys]
    await relay.store.outbox.put(messages)
    # More than there are: a claim gives each lane a share of its limit.
    claims = await relay.claim(limit=1000)
    lanes = {claimed.message.id: claim.lane for claim in claims for claimed in claim.messages}
    await relay.settle(claims, Unsent())
    await relay.store.ops.discard(Query(ids=[message.id for message in messages]), now=NOON)
    return {key: lanes[message.id] for key, message in zip(keys, messages, strict=True)}


async def lane_of(relay: Relay, key: str) -> int:
    """The lane of one key. See `lanes_of`."""
    return (await lanes_of(relay, [key]))[key]


async def a_key_beside(relay: Relay, key: str) -> str:
    """Another key that shares this one's lane. Nothing else may be waiting to be claimed."""
    lane = await lane_of(relay, key)
    # Many at a time: one by one it would take a put, a claim and a discard for each, and there are often 64 lanes.
    for start in range(0, 10_000, 200):
        found = await lanes_of(relay, [f"beside-{number}" for number in range(start, start + 200)])
        if beside := next((name for name, its in found.items() if its == lane), None):
            return beside
    raise AssertionError("no key found that shares the lane")


def seqs(claims: Sequence[Claim]) -> list[int]:
    """Every seq in these claims, in order."""
    return sorted(claimed.seq for claim in claims for claimed in claim.messages)


async def statuses(store: Store, *of: int) -> list[str]:
    """The status of these seqs, in that order."""
    by_seq = {record.seq: record.status for record in await store.ops.find(Query())}
    return [by_seq[seq] for seq in of]


class StoreCase:
    """The base of every suite: async cases, and skips that name a capability."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def store(self) -> Store:
        raise NotImplementedError(
            f"{type(self).__name__} must provide a `store` fixture: an open, migrated, empty store"
        )

    @pytest.fixture(autouse=True)
    def _skip_what_it_does_not_declare(self, request: pytest.FixtureRequest, store: Store) -> None:
        capability = getattr(request.function, "needs", None)
        if capability is not None and not getattr(store.capabilities, capability):
            pytest.skip(f"{store.capabilities.name} does not declare {capability}")
