"""The relay, whole: over each store, to a broker in memory. What is put arrives; what cannot is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.conftest import DATABASES, url_of
from tests.scenarios.outages import outage_of

from postroom.clock import monotonic
from postroom.config.values import RelayConfig
from postroom.contracts.lanes import Lane
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Claim, Settled
from postroom.contracts.store import Store
from postroom.contracts.transport import Envelope, Failed, Outcome, Rejected, Unavailable
from postroom.errors import ConfigError, StoreError, StoreUnavailable
from postroom.events import Event, Listeners, RoutePaused
from postroom.message import Message
from postroom.relay import Drained, Relay, Route
from postroom.relay.claims import LaneClaims, Turn
from postroom.retry import RetryPolicy, Table
from postroom.stores import open_store, open_waker
from postroom.stores.memory import MemoryStore
from postroom.stores.memory.outbox import MemoryOutbox
from postroom.stores.postgres import PostgresStore
from postroom.testing.waiting import until_async
from postroom.transports.memory import MemoryBroker, MemoryPublisher

MILLISECOND = timedelta(milliseconds=1)
QUICK = RetryPolicy(Table((10 * MILLISECOND,)), max_attempts=3)
CONFIG = RelayConfig(
    poll=20 * MILLISECOND, lease=timedelta(seconds=6), send_timeout=timedelta(seconds=1), batch=10, concurrency=3
)


def claims_of(relay: Relay) -> LaneClaims:
    assert isinstance(relay._source, LaneClaims)
    return relay._source


@pytest.fixture(params=["memory", *DATABASES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(url_of(request.param, request, tmp_path)) as opened:
        await opened.schema.migrate()
        yield opened


class Scripted(MemoryPublisher):
    """A broker that answers as the script says, by the message's data and how often it was asked."""

    def __init__(self, script: Callable[[Message, int], Outcome | None]) -> None:
        self.broker = MemoryBroker()
        super().__init__(self.broker)
        self._script = script
        self.asked: dict[object, int] = {}

    def _take(self, envelope: Envelope) -> Outcome:
        message = envelope.message
        self.asked[message.id] = self.asked.get(message.id, 0) + 1
        answer = self._script(message, self.asked[message.id])
        return super()._take(envelope) if answer is None else answer

    def arrived(self, key: str | None = None) -> list[object]:
        return [message.data for message in self.broker.topics["messages"] if key in (None, message.key)]


def relay_to(store: Store, publisher: MemoryPublisher, *, park: bool = True, name: str = "relay") -> Relay:
    return Relay(store, [Route(to=publisher, retry=QUICK, park=park)], config=CONFIG, name=name)


async def drain(store: Store, publisher: MemoryPublisher, *, park: bool = True) -> Drained:
    return await asyncio.wait_for(relay_to(store, publisher, park=park).drain(), 30)


def messages(number: int, keys: int = 5) -> list[Message]:
    return [Message("order.paid", key=f"k{each % keys}", data=each) for each in range(number)]


async def statuses(store: Store) -> dict[str, int]:
    counts = (await store.ops.counts()).by_status
    return {status: number for status, number in counts.items() if number}


@pytest.mark.requirement("C10", "D4")
async def test_what_was_put_arrives_once_and_in_order_per_key(store: Store) -> None:
    await store.outbox.put([*messages(100), *(Message("order.seen", data=f"free {each}") for each in range(20))])
    publisher = Scripted(lambda *_: None)
    assert await drain(store, publisher) == Drained(dead=0, parked=0)
    assert await statuses(store) == {"published": 120}
    assert len(publisher.arrived()) == 120
    for key in range(5):
        assert publisher.arrived(f"k{key}") == list(range(key, 100, 5))


@pytest.mark.requirement("D3")
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
async def test_no_transaction_is_open_while_a_message_is_sent(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The relay may look for more meanwhile, which is soon over. A transaction around the send would never be."""
    database, free = url_of(kind, request, tmp_path), list[bool]()
    outage = outage_of(database)

    class Looking(MemoryPublisher):
        async def publish(self, *args: Any, **kwargs: Any) -> Any:
            await until_async(
                lambda: not outage.is_locked(), "a transaction is open for as long as the message is sent"
            )
            free.append(True)
            return await super().publish(*args, **kwargs)

    async with open_store(database) as opened:
        await opened.schema.migrate()
        await opened.outbox.put(messages(3, keys=1))
        relay = Relay(
            opened,
            [Route(to=Looking(MemoryBroker()))],
            config=replace(CONFIG, lease=timedelta(minutes=2), send_timeout=timedelta(minutes=1)),
        )
        assert await asyncio.wait_for(relay.drain(), 60) == Drained(dead=0, parked=0)
    assert free


async def test_a_failure_is_retried_and_its_key_waits(store: Store) -> None:
    await store.outbox.put(messages(20, keys=2))
    publisher = Scripted(lambda message, time: Failed("TIMEOUT") if message.data == 0 and time < 3 else None)
    assert await drain(store, publisher) == Drained(dead=0, parked=0)
    assert publisher.arrived("k0") == list(range(0, 20, 2))
    (first, *_) = await store.ops.find(Query())
    assert first.attempts == 3


@pytest.mark.requirement("C3")
async def test_attempts_used_up_bury_the_message_and_park_its_key(store: Store) -> None:
    await store.outbox.put(messages(10, keys=2))
    publisher = Scripted(lambda message, _: Failed("TIMEOUT", "slow") if message.data == 0 else None)
    assert await drain(store, publisher) == Drained(dead=1, parked=4)
    assert publisher.arrived("k0") == []
    assert publisher.arrived("k1") == [1, 3, 5, 7, 9]
    (dead,) = await store.ops.find(Query(status="dead"))
    assert (dead.last_error_code, dead.last_error, dead.attempts) == ("MAX_ATTEMPTS", "TIMEOUT: slow", 3)


async def test_a_requeued_message_goes_first_and_its_key_follows(store: Store) -> None:
    await store.outbox.put(messages(10, keys=2))
    refuse = True
    publisher = Scripted(lambda message, _: Rejected("NO") if refuse and message.data == 0 else None)
    assert (await drain(store, publisher)).dead == 1
    refuse = False
    await store.ops.requeue(Query(status="dead"))
    assert await drain(store, publisher) == Drained(dead=0, parked=0)
    assert publisher.arrived("k0") == [0, 2, 4, 6, 8]


async def test_a_route_that_skips_goes_on_without_the_dead(store: Store) -> None:
    await store.outbox.put(messages(10, keys=2))
    publisher = Scripted(lambda message, _: Rejected("NO") if message.data == 0 else None)
    assert await drain(store, publisher, park=False) == Drained(dead=1, parked=0)
    assert publisher.arrived("k0") == [2, 4, 6, 8]


async def test_a_broker_that_is_away_costs_no_attempt(store: Store) -> None:
    await store.outbox.put(messages(10))
    publisher = Scripted(lambda *_: None)
    publisher.broker.away = True
    relay = relay_to(store, publisher)
    running = asyncio.create_task(relay.drain())
    async with asyncio.timeout(10):
        while not relay._breakers.away():
            await asyncio.sleep(0.01)
    publisher.broker.away = False
    assert await asyncio.wait_for(running, 30) == Drained(dead=0, parked=0)
    assert {record.attempts for record in await store.ops.find(Query())} == {1}


async def test_what_nobody_routes_is_dead_and_seen(store: Store) -> None:
    await store.outbox.put([Message("odd.type", key="a", data=1), Message("order.paid", key="b", data=2)])
    publisher = Scripted(lambda *_: None)
    routes = [Route(to=publisher, pattern="order.*", retry=QUICK)]
    left = await asyncio.wait_for(Relay(store, routes, config=CONFIG).drain(), 30)
    assert left == Drained(dead=1, parked=0)
    (dead,) = await store.ops.find(Query(status="dead"))
    assert dead.last_error_code == "NO_ROUTE"


@pytest.mark.requirement("B2")
async def test_a_broken_body_is_dead_at_once_and_an_expired_message_is_not_sent(store: Store) -> None:
    soon = Message("order.paid", data=1)
    await store.outbox.put(
        [
            Message("order.paid", key="a", body=b"{broken", content_type="application/json"),
            soon.replace(expires_at=soon.time),
            Message("order.paid", key="b", data="whole"),
        ]
    )
    publisher = Scripted(lambda *_: None)
    assert await drain(store, publisher) == Drained(dead=1, parked=0)
    assert publisher.arrived() == ["whole"]
    assert await statuses(store) == {"dead": 1, "expired": 1, "published": 1}
    (dead,) = await store.ops.find(Query(status="dead"))
    assert dead.last_error_code == "CORRUPT_PAYLOAD"


async def test_a_key_is_one_line_whatever_its_routes(store: Store) -> None:
    await store.outbox.put([Message(f"{kind}.made", key="a", data=number) for number, kind in enumerate("xyxxy")])
    seen: list[object] = []

    class Noting(Scripted):
        async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
            seen.extend(envelope.message.data for envelope in batch)
            return await super().publish(batch, timeout=timeout)

    x, y = Noting(lambda *_: None), Noting(lambda *_: None)
    routes = [Route(to=x, pattern="x.*", retry=QUICK), Route(to=y, pattern="y.*", retry=QUICK)]
    await asyncio.wait_for(Relay(store, routes, config=CONFIG).drain(), 30)
    assert seen == [0, 1, 2, 3, 4]


async def test_a_transport_that_raises_is_a_failure_with_unknown_effect(store: Store) -> None:
    await store.outbox.put(messages(1))

    class Raising(Scripted):
        async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
            raise RuntimeError("a bug")

    assert (await drain(store, Raising(lambda *_: None))).dead == 1
    (dead,) = await store.ops.find(Query())
    assert dead.last_error == "TRANSPORT_ERROR: RuntimeError: a bug"


async def test_a_clean_stop_hands_everything_back(store: Store) -> None:
    await store.outbox.put(messages(50))
    publisher = Scripted(lambda *_: None)
    relay = relay_to(store, publisher)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(10):
        while not publisher.arrived():
            await asyncio.sleep(0.005)
    relay.stop()
    await asyncio.wait_for(running, 10)
    assert {lane.owner for lane in await store.lanes.all()} == {None}
    assert list(await store.lanes.relays()) == []
    assert {record.attempts for record in await store.ops.find(Query())} <= {0, 1}
    assert "sending" not in await statuses(store)


@pytest.mark.requirement("C4")
async def test_two_relays_share_the_lanes_and_lose_nothing(store: Store) -> None:
    publisher = Scripted(lambda *_: None)
    both = [relay_to(store, publisher, name=f"relay-{number}") for number in range(2)]
    for relay in both:
        relay.config = replace(CONFIG, lease=timedelta(seconds=3))
        relay._heartbeat._lease = timedelta(seconds=3)
    running = [asyncio.create_task(relay.run()) for relay in both]
    async with asyncio.timeout(20):
        while not all(len(relay._owned) == 32 for relay in both):
            await asyncio.sleep(0.05)
    await store.outbox.put(messages(200, keys=40))
    async with asyncio.timeout(20):
        while await statuses(store) != {"published": 200}:
            await asyncio.sleep(0.02)
    for relay in both:
        relay.stop()
    await asyncio.gather(*running)
    assert len(publisher.arrived()) == 200
    for key in range(40):
        assert publisher.arrived(f"k{key}") == list(range(key, 200, 40))


async def test_unavailable_on_one_of_two_routes_leaves_the_other_going(store: Store) -> None:
    await store.outbox.put([Message("x.made", key="x", data="x"), Message("y.made", key="y", data="y")])
    away = Scripted(lambda *_: Unavailable(retry_after=30 * MILLISECOND))
    there = Scripted(lambda *_: None)
    routes = [Route(to=away, pattern="x.*", retry=QUICK), Route(to=there, pattern="y.*", retry=QUICK)]
    relay = Relay(store, routes, config=CONFIG)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(10):
        while there.arrived() != ["y"] or len(away.asked) < 1 or max(away.asked.values()) < 3:
            await asyncio.sleep(0.01)
    relay.stop()
    await running
    (x,) = await store.ops.find(Query(type="x.made"))
    assert (x.attempts, x.status) == (0, "pending")


async def test_a_message_whose_turn_did_not_come_says_nothing_of_the_broker(store: Store) -> None:
    await store.outbox.put(messages(5))
    publisher = Scripted(lambda message, time: Unavailable("NOT_STARTED") if message.data == 3 and time == 1 else None)
    relay = relay_to(store, publisher)
    assert await asyncio.wait_for(relay.drain(), 30) == Drained(dead=0, parked=0)
    assert not relay._breakers.away()
    assert {record.attempts for record in await store.ops.find(Query())} == {1}


async def test_a_relay_whose_heartbeat_breaks_ends_loudly() -> None:
    """A relay that went on without one would sit there, alive and useless, once its lanes have run out."""

    class Broken(MemoryOutbox):
        async def all(self) -> Sequence[Lane]:
            raise StoreError("the tables are gone")

    publisher = Scripted(lambda *_: None)
    with pytest.raises(StoreError, match="the tables are gone"):
        await asyncio.wait_for(Relay(MemoryStore(Broken()), [Route(to=publisher)], config=CONFIG).run(), 10)


async def test_no_round_of_a_batch_begins_in_a_lane_that_ran_out_meanwhile(store: Store) -> None:
    """R16: the route changes within the key, so the batch goes in two rounds; the lane is lost during the first."""
    await store.outbox.put([Message("x.made", key="a", data="x"), Message("y.made", key="a", data="y")])

    class Losing(Scripted):
        async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
            relay._owned.drop(list(relay._owned.epochs))
            return await super().publish(batch, timeout=timeout)

    x, y = Losing(lambda *_: None), Scripted(lambda *_: None)
    relay = Relay(
        store, [Route(to=x, pattern="x.*", retry=QUICK), Route(to=y, pattern="y.*", retry=QUICK)], config=CONFIG
    )
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(10):
        while not x.arrived() or relay._trips:
            await asyncio.sleep(0.005)
    relay.stop()
    await running
    assert y.arrived() == []


async def test_a_route_that_is_away_is_asked_again_and_costs_no_attempt(store: Store) -> None:
    """While the other route goes on, the messages of the paused one are not even tried."""
    kinds = ["x.made", "y.made"] * 20
    await store.outbox.put([Message(kind, key=f"{kind}{number}", data=number) for number, kind in enumerate(kinds)])
    away, there = Scripted(lambda *_: None), Scripted(lambda *_: None)
    away.broker.away = True
    heard: list[Event] = []
    relay = Relay(
        store,
        [Route(to=away, pattern="x.*", retry=QUICK), Route(to=there, pattern="y.*", retry=QUICK)],
        config=CONFIG,
        listeners=Listeners(heard.append),
    )
    running = asyncio.create_task(relay.drain())
    async with asyncio.timeout(20):
        while len(there.arrived()) < 20 or not any(isinstance(event, RoutePaused) for event in heard):
            await asyncio.sleep(0.01)
    asked = sum(isinstance(event, RoutePaused) for event in heard)
    away.broker.away = False
    assert await asyncio.wait_for(running, 40) == Drained(dead=0, parked=0)
    assert sorted(map(str, away.arrived())) == sorted(str(number) for number in range(0, 40, 2))
    assert asked < 4, "a paused route is not asked for every batch"
    assert {record.attempts for record in await store.ops.find(Query())} == {1}


GONE = Unavailable("ENDPOINT_GONE", "410 Gone", until_told=True)


async def test_a_drain_ends_when_its_only_route_is_shut_until_a_person_acts(store: Store) -> None:
    await store.outbox.put(messages(50, keys=10))
    gone = Scripted(lambda *_: GONE)
    assert await drain(store, gone) == Drained(dead=0, parked=0, shut=("default",))
    assert sum(gone.asked.values()) <= CONFIG.first_batch * CONFIG.concurrency
    assert {record.attempts for record in await store.ops.find(Query())} == {0}
    assert "ENDPOINT_GONE" in {record.last_error_code for record in await store.ops.find(Query())}


async def test_a_shut_route_leaves_the_others_going_and_the_drain_ends_after_them(store: Store) -> None:
    kinds = ["x.made", "y.made"] * 20
    await store.outbox.put([Message(kind, key=f"{kind}{number}", data=number) for number, kind in enumerate(kinds)])
    gone = Scripted(lambda *_: GONE)
    # The last of the other route is retried for longer than anything else happens.
    slow = RetryPolicy(Table((2 * timedelta(seconds=1),)), max_attempts=3)
    there = Scripted(lambda message, time: Failed("TIMEOUT") if message.data == 39 and time == 1 else None)
    routes = [Route(to=gone, pattern="x.*", name="gone"), Route(to=there, pattern="y.*", name="there", retry=slow)]
    drained = await asyncio.wait_for(Relay(store, routes, config=CONFIG).drain(), 30)
    assert drained == Drained(dead=0, parked=0, shut=("gone",))
    assert len(there.arrived()) == 20
    left = await store.ops.find(Query(type="x.made"))
    assert {record.attempts for record in left} == {0}
    assert {record.last_error_code for record in left} == {"ENDPOINT_GONE", "ROUTE_SHUT"}


async def test_a_relay_started_anew_asks_a_shut_route_again(store: Store) -> None:
    await store.outbox.put(messages(3))
    told = False
    publisher = Scripted(lambda *_: None if told else GONE)
    assert (await drain(store, publisher)).shut
    told = True
    assert await drain(store, publisher) == Drained(dead=0, parked=0)
    assert len(publisher.arrived()) == 3


async def test_a_message_waits_for_its_route_if_so_configured(store: Store) -> None:
    await store.outbox.put([Message("odd.type", key="a", data=1), Message("order.paid", key="a", data=2)])
    publisher = Scripted(lambda *_: None)
    routes = [Route(to=publisher, pattern="order.*", retry=QUICK)]
    relay = Relay(store, routes, config=replace(CONFIG, no_route="wait"))
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(20):
        while (await store.ops.find(Query(type="odd.type")))[0].last_error_code != "NO_ROUTE":
            await asyncio.sleep(0.01)
    relay.stop()
    await running
    (odd, behind) = await store.ops.find(Query())
    assert (odd.status, odd.attempts, behind.status) == ("pending", 0, "pending")
    assert publisher.arrived() == []
    with pytest.raises(ConfigError, match="would not end"):
        await Relay(store, routes, config=replace(CONFIG, no_route="wait")).drain()


async def test_a_relay_with_a_long_poll_hears_of_a_commit_at_once(store: Store) -> None:
    publisher = Scripted(lambda *_: None)
    relay = Relay(store, [Route(to=publisher)], config=replace(CONFIG, poll=timedelta(minutes=10)))
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(20):
        while not len(relay._owned) or claims_of(relay)._idle._next < 1:
            await asyncio.sleep(0.01)
    await store.outbox.put(messages(1))
    url = store._connections.url if isinstance(store, PostgresStore) else "memory://"
    with open_waker(url) as waker:
        waker.wake()
    async with asyncio.timeout(20):
        while not publisher.arrived():
            await asyncio.sleep(0.01)
    relay.stop()
    await running


async def test_a_database_that_does_not_answer_is_not_waited_for_longer_than_the_lease_allows() -> None:
    class Hanging(MemoryOutbox):
        hangs = 1

        async def claim(self, *args: Any, **kwargs: Any) -> Sequence[Claim]:
            claims = await super().claim(*args, **kwargs)
            if claims and self.hangs:
                self.hangs -= 1
                await asyncio.Event().wait()  # carried out, and the answer never comes
            return claims

    store = MemoryStore(Hanging())
    await store.outbox.put(messages(5))
    publisher = Scripted(lambda *_: None)
    config = replace(CONFIG, lease=timedelta(seconds=1), send_timeout=timedelta(milliseconds=100))
    assert await asyncio.wait_for(Relay(store, [Route(to=publisher)], config=config).drain(), 30) == Drained(
        dead=0, parked=0
    )
    assert {record.attempts for record in await store.ops.find(Query())} == {1}


async def test_a_claim_whose_answer_was_lost_is_found_though_other_lanes_flow_all_the_time() -> None:
    """R22. Whoever looks for it only when nothing else is claimed never finds it while there is always something."""

    class Forgetful(MemoryOutbox):
        forgets = True

        async def claim(self, *args: Any, **kwargs: Any) -> Sequence[Claim]:
            claims = await super().claim(*args, **kwargs)
            if claims and self.forgets:
                self.forgets = False
                await self.put([Message("order.paid", key="b", data="more")])
                raise StoreUnavailable("carried out, and the answer was lost")
            return claims

    store = MemoryStore(Forgetful())
    await store.outbox.put([Message("order.paid", key="a", data="forgotten")])

    class Feeding(Scripted):
        async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
            await store.outbox.put([Message("order.paid", key="b", data="more")])
            return await super().publish(batch, timeout=timeout)

    publisher = Feeding(lambda *_: None)
    relay = Relay(store, [Route(to=publisher)], config=replace(CONFIG, concurrency=1))
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(20):
        while "forgotten" not in publisher.arrived() and len(publisher.arrived()) < 1_000:
            await asyncio.sleep(0.001)
    relay.stop()
    await running
    assert "forgotten" in publisher.arrived()


async def test_a_joining_relay_gets_its_share_long_before_a_beat_is_due(store: Store) -> None:
    """The lease is an hour: only being told of each other can share the lanes in time."""
    if not store.capabilities.notices_relays:
        pytest.skip(
            f"{store.capabilities.name} does not declare notices_relays: relays see each other at the next beat"
        )
    config = replace(CONFIG, lease=timedelta(hours=1))
    relays = [Relay(store, [Route(to=Scripted(lambda *_: None))], config=config, name=name) for name in "ab"]
    running = [asyncio.create_task(relays[0].run())]
    async with asyncio.timeout(30):
        while len(relays[0]._owned) < 64:
            await asyncio.sleep(0.01)
        running.append(asyncio.create_task(relays[1].run()))
        while [len(relay._owned) for relay in relays] != [32, 32]:
            await asyncio.sleep(0.01)
        relays[0].stop()
        while len(relays[1]._owned) < 64:
            await asyncio.sleep(0.01)
    relays[1].stop()
    await asyncio.gather(*running)


async def test_a_lone_message_is_found_by_the_first_claim_whatever_its_lane(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim from some of the lanes alone would come back empty, again and again, and each time the wait gets longer."""
    real, asked = store.outbox.claim, 0
    needed: list[int] = []

    async def counted(*args: Any, **kwargs: Any) -> Sequence[Claim]:
        nonlocal asked
        asked += 1
        return await real(*args, **kwargs)

    monkeypatch.setattr(store.outbox, "claim", counted)
    publisher = Scripted(lambda *_: needed.append(asked))
    relay = Relay(store, [Route(to=publisher)], config=CONFIG)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(30):
        for number in range(8):
            while not claims_of(relay)._idle.waited or relay._trips or not len(relay._owned):
                await asyncio.sleep(0.01)
            asked = 0
            await store.outbox.put([Message("order.paid", key=f"lone-{number}", data=number)])
            while len(needed) <= number:
                await asyncio.sleep(0.001)
    relay.stop()
    await running
    assert needed == [1] * 8


async def test_a_settle_that_gives_up_leaves_its_lane_in_doubt() -> None:
    """R10. Nobody knows whether it was carried out."""

    class NeverSettles(MemoryOutbox):
        async def settle(self, *args: Any, **kwargs: Any) -> Mapping[int, Settled]:
            raise StoreUnavailable("nobody answers")

        async def renew(self, *args: Any, **kwargs: Any) -> frozenset[int]:
            raise StoreUnavailable("nobody answers")

    store = MemoryStore(NeverSettles())
    await store.outbox.put(messages(1))
    config = replace(CONFIG, lease=timedelta(seconds=1), send_timeout=timedelta(milliseconds=100))
    relay = Relay(store, [Route(to=Scripted(lambda *_: None))], config=config)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(20):
        while not claims_of(relay)._doubtful:
            await asyncio.sleep(0.01)
    relay.stop()
    await running


async def test_the_last_try_of_a_suspect_waits_until_nothing_else_is_under_way() -> None:
    """R8. And it tells the store that it is alone."""
    asked: list[bool] = []

    class Listening(MemoryOutbox):
        async def claim(self, *args: Any, **kwargs: Any) -> Sequence[Claim]:
            asked.append(kwargs["alone"])
            return await super().claim(*args, **kwargs)

    relay = Relay(MemoryStore(Listening()), [Route(to=Scripted(lambda *_: None))], config=CONFIG)
    relay._owned.add([Lane(3, 1, relay.owner, None)], monotonic() + 60)
    over = asyncio.Event()

    async def other() -> None:
        await over.wait()

    under_way = asyncio.create_task(other())
    relay._trips[under_way] = Turn()
    claims_of(relay)._suspects.last_try = 3
    trying = asyncio.create_task(relay._start_trip())
    await asyncio.sleep(0.05)
    assert not asked, "it was claimed while something else was under way"
    over.set()
    assert await trying
    assert asked == [True]
