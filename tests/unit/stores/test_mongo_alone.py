"""Without transactions a relay may die between any two writes: wherever it does, its successor makes everything good."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection
from tests.scenarios.conftest import url_of

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Claim, Published, Retry, Settlement, Verdict
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.stores.mongo import MongoStore
from postroom.stores.mongo.claim import ClaimWithoutTransactions
from postroom.testing.contracts._case import LEASE, MINUTE, NOON, SECOND, Relay, a_message, a_relay, put, statuses
from postroom.testing.journal import Delivery, Name, Run, check

WRITES = ("update_one", "update_many", "insert_many", "delete_many", "bulk_write", "find_one_and_update")
WRITES_MAX = 42
"""More than the victim makes: the last of its lives is a whole one."""
PUT = [Name("a", 1), Name("b", 1), Name("c", 1), Name("a", 2), Name("b", 2), Name("a", 3)]
LATER = NOON + 2 * LEASE


class Died(Exception):
    """Here the relay was killed."""


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[MongoStore]:
    # The dead apart: that is more writes between which to die.
    async with MongoStore(
        f"{url_of('mongo_standalone', request, tmp_path)}&postroom_dead=collection", lanes=8
    ) as store:
        await store.schema.migrate()
        yield store


@contextmanager
def dying_after(writes: int) -> Iterator[list[str]]:
    """Nothing is written after so many writes; what was."""
    made: list[str] = []

    def mortal(name: str, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def tried(self: Any, *args: Any, **kwargs: Any) -> Any:
            if len(made) >= writes:
                raise Died
            made.append(f"{name} {self.name}")
            return await write(self, *args, **kwargs)

        return tried

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(AsyncCollection, name, mortal(name, getattr(AsyncCollection, name)))
        yield made


class Life:
    """A relay's: it sends what it claims, and some of it fails."""

    def __init__(self, store: Store, sent: list[Delivery], tries: Counter[Name], owner: str) -> None:
        self._store, self._sent, self._tries, self._relay = store, sent, tries, Relay(store, owner)
        self.trying: set[Name] = set()
        """What it sent of the batch that it has in its hands."""

    async def victim(self) -> None:
        """A head that fails, one that dies and is discarded, and what comes after them."""
        await self._relay.take(now=NOON)
        failing: dict[Name, Verdict] = {
            Name("a", 1): Retry(timedelta(0), "AWAY"),
            Name("b", 1): Buried("REJECTED"),
        }
        await self._round(NOON, failing)
        await self._round(NOON + SECOND)
        await self._round(NOON + 2 * SECOND)
        await self._store.ops.discard(Query(status="dead"), now=NOON)
        await self._round(NOON + 3 * SECOND)
        await self._store.lanes.release(self._relay.owner, self._relay.lanes)

    async def successor(self) -> None:
        """Takes over, and goes on until nothing comes."""
        await self._relay.take(now=LATER)
        for minute in range(20):
            now = LATER + minute * MINUTE
            await self._store.lanes.renew(self._relay.owner, self._relay.lanes, lease=2 * LEASE, now=now)
            await self._round(now)

    async def _round(self, now: datetime, failing: Mapping[Name, Verdict] = {}) -> None:
        self.trying.clear()
        claims = await self._relay.claim(now=now)
        for claim, verdicts in [(claim, self._send(claim, failing)) for claim in claims]:
            whole = set(map(type, verdicts.values())) == {Published} and len(verdicts) == len(claim.messages)
            await self._store.outbox.settle([Settlement(claim, verdicts, whole)], now=now)

    def _send(self, claim: Claim, failing: Mapping[Name, Verdict]) -> dict[int, Verdict]:
        verdicts: dict[int, Verdict] = {}
        stopped: set[str] = set()
        for claimed in claim.messages:
            name = _name(claimed.message)
            if name.key in stopped:
                continue
            self._tries[name] += 1
            self.trying.add(name)
            verdicts[claimed.seq] = failing.get(name, Published())
            if name in failing:
                stopped.add(name.key)
            else:
                self._sent.append(Delivery(name, self._relay.owner))
        return verdicts


def _name(message: Message) -> Name:
    return Name(str(message.key), message.data)


async def _fill(store: Store) -> None:
    for name in PUT:
        await store.outbox.put([a_message(key=name.key, data=name.number)])


@pytest.mark.parametrize("writes", range(WRITES_MAX))
async def test_who_dies_between_two_writes_leaves_nothing_that_is_not_made_good(store: MongoStore, writes: int) -> None:
    await _fill(store)
    sent: list[Delivery] = []
    tries: Counter[Name] = Counter()
    victim = Life(store, sent, tries, "victim")
    with dying_after(writes) as made, suppress(Died):
        await victim.victim()
    flying = {
        record.seq: _name(record.message) for record in await store.ops.find(Query()) if record.status == "sending"
    }
    unmarked = await store.outbox.collections.claim.find({"mark": None}).to_list()
    undecided = {flying[seq] for claim in unmarked for seq in claim["seqs"]}
    await Life(store, sent, tries, "successor").successor()
    records = {_name(record.message): record for record in await store.ops.find(Query())}
    found = {name: record.status for name, record in records.items()}
    check(Run(put=PUT, journal=sent, found=found, faults=dict.fromkeys(undecided, 1)))
    spent = {name: record.attempts for name, record in records.items()}
    assert spent == {name: tries[name] + (name in undecided - victim.trying) for name in PUT}, made


async def test_the_last_life_is_a_whole_one(store: Store) -> None:
    """Else the deaths above would not reach its end."""
    await _fill(store)
    with dying_after(WRITES_MAX - 1) as made:
        await Life(store, [], Counter(), "victim").victim()
    assert WRITES_MAX - 5 < len(made) < WRITES_MAX


async def test_a_command_that_died_halfway_is_made_good_by_the_next(store: Store) -> None:
    relay = await a_relay(store)
    dead, waiting = await put(store, "a", "a")
    await relay.settle_each(await relay.claim(limit=1), {dead: Buried("REJECTED")})
    assert await relay.seqs() == []
    with dying_after(3), pytest.raises(Died):
        await store.ops.discard(Query(status="dead"))
    assert await statuses(store, dead, waiting) == ["discarded", "pending"]
    assert await relay.seqs() == [], "its key still waits"
    await store.ops.discard(Query(status="dead"))
    assert await relay.seqs() == [waiting]


async def test_what_comes_into_the_line_while_it_is_read_is_not_overtaken(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is past the place of the first when it comes, and meets the second."""
    first, second = await put(store, "a", "a")
    relay = await a_relay(store)
    read = store.outbox._claiming._read
    looks: list[int] = []

    async def late(*args: Any) -> Any:
        lines = await read(*args)
        looks.append(len(looks))
        return {
            lane: [each for each in line if each["seq"] != first] if looks == [0] else line
            for lane, line in lines.items()
        }

    monkeypatch.setattr(store.outbox._claiming, "_read", late)
    assert await relay.seqs() == [first, second]
    assert len(looks) == 2


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_lane_that_is_taken_while_it_is_claimed_from_is_lost(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before or after the claim is written: nothing of it is sent, and nothing of it stays."""
    (seq,) = await put(store, "a")
    slow = await a_relay(store)
    insert = ClaimWithoutTransactions.insert
    taken: list[Relay] = []

    async def meanwhile(self: ClaimWithoutTransactions, claims: Any, held: Any) -> None:
        if moment == "before" and not taken:
            taken.append(await a_relay(store, "relay-b", now=LATER))
        await insert(self, claims, held)
        if moment == "after" and not taken:
            taken.append(await a_relay(store, "relay-b", now=LATER))

    monkeypatch.setattr(ClaimWithoutTransactions, "insert", meanwhile)
    claims = await slow.claim()
    (quick,) = taken
    if moment == "before":
        assert claims == []
        assert await quick.seqs(now=LATER) == [seq]
    else:
        assert await slow.settle(claims, now=LATER) == "lost"
        assert await quick.seqs(now=LATER + MINUTE) == [seq]


async def test_a_claim_that_came_too_late_and_stayed_is_in_nobodys_way(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its relay died between writing it and seeing that the lane was another's."""
    (seq,) = await put(store, "a")
    slow = await a_relay(store)
    insert = ClaimWithoutTransactions.insert
    taken: list[Relay] = []

    async def meanwhile(self: ClaimWithoutTransactions, claims: Any, held: Any) -> None:
        if not taken:
            taken.append(await a_relay(store, "relay-b", now=LATER))
            await self.collections.claim.insert_many(claims)
            raise Died
        await insert(self, claims, held)

    monkeypatch.setattr(ClaimWithoutTransactions, "insert", meanwhile)
    with pytest.raises(Died):
        await slow.claim()
    (found,) = await taken[0].claim(now=LATER)
    assert [(each.seq, each.attempts) for each in found.messages] == [(seq, 0)], "and it cost no attempt"


async def test_a_second_claim_does_not_slip_in_between_the_number_of_a_lane_and_its_claim(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = await put(store, "a", "b", "c")
    relay, locked, go_on = await a_relay(store), asyncio.Event(), asyncio.Event()
    lock = ClaimWithoutTransactions.lock

    async def lock_and_wait(self: ClaimWithoutTransactions, *args: Any) -> None:
        await lock(self, *args)
        locked.set()
        await go_on.wait()

    monkeypatch.setattr(ClaimWithoutTransactions, "lock", lock_and_wait)
    first = asyncio.create_task(relay.seqs())
    await locked.wait()
    second = asyncio.create_task(relay.seqs())
    await asyncio.wait([second], timeout=0.3)
    go_on.set()
    assert sorted(await first + await second) == written
