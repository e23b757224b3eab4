"""Each place a message can be in, and the sentences that explain it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from postroom.codes import CODES, WAITS, Code
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import Query, Record, Status
from postroom.contracts.outbox import Buried, Expired, Retry
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.ops.explain import explain, sentences
from postroom.ops.status import RelaySnapshot
from postroom.stores.memory import MemoryStore
from postroom.stores.postgres import PostgresStore
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts._case import LEASE, MINUTE, NOON, SECOND, Relay, a_message, a_relay

PARK = Buried("HTTP_422", "no such order.")
SKIP = Buried("HTTP_422", "no such order.", park=False)
TIMEOUT = Retry(30 * SECOND, "TIMEOUT", "no answer within 2.5s")
AWAY = Retry(30 * SECOND, "CONNECT_FAILED", "connection refused", spent=False)
LOST = "no route fits the type 'order.paid'"

AT_NOON = "2030-01-01 12:00:00Z (now)"
IN_30S = "2030-01-01 12:00:30Z (in 30s)"
OWNED = "is owned by relay relay-a until 2030-01-01 12:01:00Z (in 1m)."
MAYBE = "It may have been delivered, if an answer was lost."
NOBODY = RelaySnapshot(lanes=[], relays=[], now=NOON)
TURN = "Nothing holds it back: it is next in line of its key."


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "post.db")
    if request.param == "postgres":
        opened = PostgresStore(request.getfixturevalue("postgres_database"))
    async with opened:
        await opened.schema.migrate()
        yield opened


async def put(store: Store, *keys: str | None, **fields: Any) -> list[UUID]:
    messages = [a_message(key=key, **fields) for key in keys]
    for message in messages:
        await store.outbox.put([message])
    return [message.id for message in messages]


async def told(store: Store, id: UUID, *, now: datetime = NOON) -> list[str]:
    """The sentences, with the moment of writing and the number of the lane, which no test can know, left out."""
    explained = await explain(store, id, now=now)
    assert explained.record is not None
    lane, written = f"lane, {explained.record.lane}", f"{explained.record.created_at:%Y-%m-%d %H:%M:%S}Z"
    return [
        "It is pending."
        if sentence.startswith(f"It has been pending since {written}")
        else sentence.replace(lane, "lane, N")
        for sentence in explained.sentences
    ]


# ── settled ──


async def test_a_published_message_says_when_and_at_which_try(store: Store) -> None:
    first, second = await put(store, "a", "b")
    relay = await a_relay(store)
    (one, two) = await relay.claim()
    failing = one if one.messages[0].message.id == second else two
    await relay.settle([two if failing is one else one])
    await relay.settle([failing], TIMEOUT)
    await relay.settle(await relay.claim(now=NOON + 30 * SECOND), now=NOON + 30 * SECOND)
    assert await told(store, first) == [f"It was published at {AT_NOON}, at the first try."]
    assert await told(store, second, now=NOON + MINUTE) == [
        "It was published at 2030-01-01 12:00:30Z (30s ago), at the 2nd try."
    ]


async def test_a_dead_message_says_why_and_who_waits_and_the_commands_to_type(store: Store) -> None:
    dead, _, _ = await put(store, "a", "a", "a")
    await _bury_first(store)
    assert await told(store, dead) == [
        f"It died at {AT_NOON}, after 1 try: HTTP_422: no such order.",
        MAYBE,
        "Its key 'a' is parked: 2 messages wait behind it.",
        f"Run `postroom requeue {dead}` to send it again, or `postroom discard {dead}` to give it up.",
    ]


async def test_a_message_that_no_route_fitted_was_not_sent_and_asks_for_a_route(store: Store) -> None:
    (dead,) = await put(store, "a", type="order.paid")
    await _settle_first(store, Buried("NO_ROUTE", LOST))
    assert await told(store, dead) == [
        f"It died at {AT_NOON}, after 1 try: NO_ROUTE: {LOST}.",
        "It was not sent anywhere.",
        "Its key 'a' is parked: 0 messages wait behind it.",
        f"Run `postroom requeue {dead}` to send it again, or `postroom discard {dead}` to give it up.",
        "Add a route that fits 'order.paid' to postroom.toml and restart the relays; then requeue it.",
    ]


async def test_a_message_that_waits_for_a_route_says_so(store: Store) -> None:
    (id,) = await put(store, "a", type="order.paid")
    await _settle_first(store, Retry(30 * SECOND, "NO_ROUTE", LOST, spent=False))
    assert await told(store, id) == [
        f"It could not be sent at {AT_NOON}, which spent no attempt: NO_ROUTE: {LOST}.",
        f"Its next try is due at {IN_30S}, and its key waits with it.",
        f"Its lane, N, {OWNED}",
        "Add a route that fits 'order.paid' to postroom.toml and restart the relays; it goes by itself then.",
    ]


async def test_a_broken_body_that_was_tried_before_may_have_been_delivered(store: Store) -> None:
    (dead,) = await put(store, "a")
    relay = await _settle_first(store, TIMEOUT)
    later = NOON + 30 * SECOND
    await relay.settle(await relay.claim(now=later), Buried("CORRUPT_PAYLOAD", "the body is not JSON"), now=later)
    assert MAYBE in await told(store, dead, now=later)


async def test_a_dead_message_with_nothing_behind_it_says_so(store: Store) -> None:
    (dead,) = await put(store, "a")
    await _bury_first(store)
    assert "Its key 'a' is parked: 0 messages wait behind it." in await told(store, dead)
    await put(store, "a")
    assert "Its key 'a' is parked: 1 message waits behind it." in await told(store, dead)


async def test_a_dead_message_that_parks_nothing_says_so(store: Store) -> None:
    keyed, keyless = await put(store, "a", None)
    relay = await a_relay(store)
    await relay.settle(await relay.claim(), SKIP)
    assert (await told(store, keyed))[1:3] == [MAYBE, "Its key is not parked by it: later messages pass it by."]
    assert [sentence for sentence in await told(store, keyless) if "key" in sentence] == []


async def test_an_expired_message_says_when_its_time_ran_out(store: Store) -> None:
    (late,) = await put(store, "a", expires_at=NOON - MINUTE)
    relay = await a_relay(store)
    await relay.settle(await relay.claim(), Expired())
    assert await told(store, late) == [
        "It expired at 2030-01-01 11:59:00Z (1m ago), before it could be sent.",
        "It will not be sent: if it still matters, put a new message.",
    ]


async def test_a_discarded_message_says_who_did_it_and_whether_it_was_tried(store: Store) -> None:
    tried, untried = await put(store, "a", "b")
    relay = await a_relay(store)
    claims = await relay.claim()
    seq = next(each.seq for claim in claims for each in claim.messages if each.message.id == tried)
    await relay.settle_each(claims, {seq: TIMEOUT})
    await store.ops.discard(Query(ids=[tried, untried]), now=NOON)
    gone = f"A person discarded it at {AT_NOON}: it will not be sent."
    assert await told(store, untried) == [gone]
    assert await told(store, tried) == [
        gone,
        "It may have been delivered before that: it had 1 try, the last with TIMEOUT: no answer within 2.5s.",
    ]


async def test_an_unknown_id_is_said_in_one_sentence(store: Store) -> None:
    id = UUID("018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
    explained = await explain(store, id)
    assert explained.record is None
    assert explained.sentences == [
        (
            f"There is no message {id} in this outbox: its transaction never committed, or it is in another store; "
            "`postroom list` shows what is here."
        )
    ]


# ── waiting ──


async def test_the_next_in_line_names_the_relay_that_will_send_it(store: Store) -> None:
    keyed, keyless = await put(store, "a", None)
    await a_relay(store)
    assert await told(store, keyed) == ["It is pending.", TURN, f"Its lane, N, {OWNED}"]
    assert (await told(store, keyless))[1] == (
        "Nothing holds it back: it has no key, so it waits for no other message."
    )


async def test_a_relay_on_record_is_called_by_its_name(store: Store) -> None:
    (id,) = await put(store, "a")
    await a_relay(store, "shop#1")
    await store.lanes.join(RelayInfo(owner="shop#1", name="shop", host="host-1"), now=NOON)
    assert "owned by relay shop (shop#1) on host-1 until" in (await told(store, id))[-1]


async def test_a_lane_that_nobody_owns_asks_for_a_relay(store: Store) -> None:
    (id,) = await put(store, "a")
    assert await told(store, id) == [
        "It is pending.",
        TURN,
        "Its lane, N, has no owner: no relay is running, so start one with `postroom relay`.",
    ]


async def test_a_lane_whose_lease_ran_out_asks_for_a_relay(store: Store) -> None:
    (id,) = await put(store, "a")
    await a_relay(store)
    assert (await told(store, id, now=NOON + 2 * LEASE))[-1] == (
        "Its lane, N, was owned by relay relay-a, whose lease ran out at 2030-01-01 12:01:00Z (1m ago): "
        "no relay is running, so start one with `postroom relay`."
    )


async def test_a_free_lane_is_left_to_a_relay_that_runs(store: Store) -> None:
    (id,) = await put(store, "a")
    relay = await a_relay(store)
    (record,) = await store.ops.find(Query(ids=[id]))
    assert record.lane is not None
    await store.lanes.release("relay-a", {record.lane: relay.lanes[record.lane]})
    assert (await told(store, id))[-1] == "Its lane, N, has no owner: a running relay will take it over."


async def test_one_behind_a_parked_key_names_the_dead_head_and_the_commands_to_type(store: Store) -> None:
    dead, behind = await put(store, "a", "a")
    await _bury_first(store)
    assert await told(store, behind) == [
        "It is pending.",
        f"Its key 'a' is parked: it waits behind {dead}, which is dead: HTTP_422: no such order.",
        (
            f"Run `postroom requeue {dead}` to send that one again (it may have been delivered), "
            f"or `postroom discard {dead}` to give it up."
        ),
    ]
    await store.ops.requeue(Query(ids=[dead]))
    assert "It waits its turn: 1 earlier message of its key goes first." in await told(store, behind)


async def test_a_key_with_several_dead_heads_says_how_to_see_them(store: Store) -> None:
    *_, behind = await put(store, "it's", "it's", "it's")
    relay = await a_relay(store)
    await relay.settle(await relay.claim(limit=2), PARK)
    assert (await told(store, behind))[-1] == (
        """1 more dead message parks the key too: `postroom list --status dead --key 'it'"'"'s'` shows them."""
    )


async def test_one_behind_a_dead_message_that_parks_nothing_is_next_in_line(store: Store) -> None:
    (_,) = await put(store, "a")
    relay = await a_relay(store)
    await relay.settle(await relay.claim(), SKIP)
    (later,) = await put(store, "a")
    assert TURN in await told(store, later)


async def test_one_behind_a_head_in_backoff_names_it_and_when_it_is_due(store: Store) -> None:
    head, behind = await put(store, "a", "a")
    await _settle_first(store, TIMEOUT)
    assert await told(store, behind) == [
        "It is pending.",
        f"It waits behind {head} of its key, which failed with TIMEOUT: no answer within 2.5s and is due at {IN_30S}.",
        f"Its lane, N, {OWNED}",
    ]


async def test_one_behind_a_message_in_flight_names_it_and_its_relay(store: Store) -> None:
    flying, behind = await put(store, "a", "a")
    relay = await a_relay(store)
    await relay.claim(limit=1)
    waits = f"It waits for {flying} of its key, in flight at relay relay-a since"
    assert await told(store, behind) == ["It is pending.", f"{waits} {AT_NOON}."]


async def test_one_behind_earlier_ones_of_its_key_waits_its_turn(store: Store) -> None:
    *_, last = await put(store, "a", "a", "a")
    assert (await told(store, last))[1] == "It waits its turn: 2 earlier messages of its key go first."


async def test_one_that_is_not_due_holds_nobody(store: Store) -> None:
    (later,) = await put(store, "a", not_before=NOON + 30 * SECOND)
    (other,) = await put(store, "a")
    assert (await told(store, later))[1] == f"It is not due until {IN_30S}; its key does not wait for it."
    assert TURN in await told(store, other)


async def test_one_that_is_not_due_and_parked_says_both(store: Store) -> None:
    (dead,) = await put(store, "a")
    await _bury_first(store)
    (later,) = await put(store, "a", not_before=NOON + 30 * SECOND)
    _, time, park, _ = await told(store, later)
    assert time.startswith("It is not due until")
    assert str(dead) in park


async def test_one_whose_time_ran_out_before_a_relay_saw_it_says_what_will_become_of_it(store: Store) -> None:
    (late,) = await put(store, "a", expires_at=NOON - MINUTE)
    assert (await told(store, late))[1] == (
        "Its time ran out at 2030-01-01 11:59:00Z (1m ago): the relay will settle it as expired, and not send it."
    )


# ── failed, and in flight ──


async def test_a_failed_message_says_its_error_and_when_it_is_tried_again(store: Store) -> None:
    (id,) = await put(store, "a")
    await _settle_first(store, TIMEOUT)
    failed = "at the first try: TIMEOUT: no answer within 2.5s."
    assert await told(store, id) == [
        f"It failed at {AT_NOON}, {failed}",
        f"Its next try is due at {IN_30S}, and its key waits with it; `postroom requeue {id}` makes it due at once.",
        f"Its lane, N, {OWNED}",
        "There is nothing to do about TIMEOUT: it is tried again by itself.",
    ]
    assert (await told(store, id, now=NOON + 30 * SECOND))[:2] == [
        f"It failed at 2030-01-01 12:00:00Z (30s ago), {failed}",
        TURN,
    ]


async def test_a_keyless_message_in_backoff_speaks_of_no_key(store: Store) -> None:
    (id,) = await put(store, None)
    await _settle_first(store, TIMEOUT)
    assert (await told(store, id))[1] == (
        f"Its next try is due at {IN_30S}; `postroom requeue {id}` makes it due at once."
    )


async def test_a_message_that_met_a_broker_that_was_away_has_spent_no_attempt(store: Store) -> None:
    id, behind = await put(store, "a", "a")
    await _settle_first(store, AWAY)
    assert (await told(store, id))[:2] == [
        f"It could not be sent at {AT_NOON}, which spent no attempt: CONNECT_FAILED: connection refused.",
        f"Its next try is due at {IN_30S}, and its key waits with it.",
    ]
    assert f"It waits behind {id} of its key" in (await told(store, behind))[1]
    (record,) = await store.ops.find(Query(ids=[id]))
    assert (record.status, record.attempts, record.last_error_code) == ("pending", 0, "CONNECT_FAILED")


async def test_a_message_in_flight_at_a_relay_that_fell_silent_says_when_another_takes_over(store: Store) -> None:
    (id,) = await put(store, "a")
    relay = await a_relay(store)
    await store.lanes.join(RelayInfo(owner="relay-a", name="relay-a"), now=NOON)
    await relay.claim()
    assert await told(store, id, now=NOON + 50 * SECOND) == [
        (
            "It is in flight at relay relay-a since 2030-01-01 12:00:00Z (50s ago), last heard of 2030-01-01 12:00:00Z "
            "(50s ago): if it is dead, another takes over when its lease ends at 2030-01-01 12:01:00Z (in 10s)."
        )
    ]


async def test_a_message_in_the_lane_of_a_silent_relay_waits_for_its_lease_and_is_told_so(store: Store) -> None:
    (id,) = await put(store, "a")
    await a_relay(store)
    await store.lanes.join(RelayInfo(owner="relay-a", name="relay-a"), now=NOON)
    assert (await told(store, id, now=NOON + 10 * SECOND))[1] == TURN
    assert await told(store, id, now=NOON + 50 * SECOND) == [
        "It is pending.",
        "Only its relay holds it back: it is next in line of its key.",
        (
            "Its lane, N, is owned by relay relay-a, last heard of 2030-01-01 12:00:00Z (50s ago): if it is dead, another "
            "takes over when its lease ends at 2030-01-01 12:01:00Z (in 10s)."
        ),
    ]


@pytest.mark.parametrize("status", ["pending", "sending"])
def test_a_relay_whose_process_is_gone_is_said_to_be_gone(status: Status) -> None:
    lane = Lane(0, 1, "relay-a", NOON + MINUTE)
    relays = [RelayInfo(owner="relay-a", name="relay-a", seen_at=NOON)]
    record = _record(status=status, owner="relay-a", locked_at=NOON)
    sending = RelaySnapshot(lanes=[lane], relays=relays, now=NOON + SECOND, gone=frozenset(["relay-a"]))
    assert sentences(record, [], sending)[-1].endswith(
        ", whose process is gone: a relay on its machine takes over at once, any other when its lease ends at "
        "2030-01-01 12:01:00Z (in 59s)."
    )


async def test_a_message_in_flight_names_its_relay_and_since_when(store: Store) -> None:
    (id,) = await put(store, "a")
    relay = await a_relay(store)
    await relay.claim()
    assert await told(store, id, now=NOON + SECOND) == [
        "It is in flight at relay relay-a since 2030-01-01 12:00:00Z (1s ago)."
    ]


async def test_a_message_in_flight_at_a_relay_whose_lease_ran_out_will_be_taken_over(store: Store) -> None:
    (id,) = await put(store, "a")
    relay = await a_relay(store)
    await relay.claim()
    lost = "It is in flight at relay relay-a since 2030-01-01 12:00:00Z (2m ago), whose lease ran out at "
    again = "2030-01-01 12:01:00Z (1m ago): {}; it may have been delivered, and goes again."
    later = NOON + 2 * MINUTE
    assert await told(store, id, now=later) == [
        lost + again.format("no relay is running, so start one with `postroom relay`")
    ]
    await _one_other_lane(store, later, but=id)
    assert await told(store, id, now=later) == [lost + again.format("a running relay will take it over")]


async def test_the_wall_clock_is_used_when_no_time_is_given(store: Store) -> None:
    (id,) = await put(store, "a")
    explained = await explain(store, id)
    assert explained.sentences[0].startswith("It has been pending since ")
    assert explained.sentences[0].endswith(("(now).", "s ago)."))


# ── what to do ──


@pytest.mark.parametrize(("code", "known"), CODES.items())
def test_an_explanation_of_a_dead_message_ends_with_the_remedy_of_its_code(code: str, known: Code) -> None:
    dead = _record(status="dead", attempts=6, settled_at=NOON, last_error_code=code, last_error="so")
    last = sentences(dead, [dead], NOBODY)[-1]
    if code == "NO_ROUTE":
        assert last.startswith("Add a route that fits 'order.paid'")
    elif known.remedy and known.remedy != WAITS:
        assert last == f"What to do about {code}: {known.remedy}."
    else:
        assert last.startswith("Run `postroom requeue"), "it was given up: waiting is no remedy"


def test_a_message_that_failed_at_every_try_has_the_remedy_of_its_last_try_too() -> None:
    dead = _record(status="dead", attempts=6, last_error_code="MAX_ATTEMPTS", last_error="HTTP_404: not found")
    assert sentences(dead, [dead], NOBODY)[-2:] == [
        "What to do about HTTP_404: fix the URL, or the receiver.",
        "What to do about MAX_ATTEMPTS: fix the cause, then requeue.",
    ]


def test_one_behind_a_dead_message_has_the_remedy_of_that_one() -> None:
    head = _record(status="dead", attempts=1, parked=True, last_error_code="NO_TOPIC")
    behind = _record(seq=2)
    assert sentences(behind, [head, behind], NOBODY)[-1] == ("What to do about NO_TOPIC: name a topic, then requeue.")
    unrouted = _record(status="dead", attempts=1, parked=True, last_error_code="NO_ROUTE")
    assert sentences(behind, [unrouted, behind], NOBODY)[-1].endswith("then requeue that one.")


# ── what a stranger wrote ──


def test_a_row_without_a_lane_gets_one_from_the_relay() -> None:
    assert sentences(_record(lane=None), [], RelaySnapshot(lanes=[Lane(0, 0, None, None)], relays=[], now=NOON))[
        -1
    ] == ("It has no lane yet, and gets one from the relay: no relay is running, so start one with `postroom relay`.")


def test_a_dead_row_without_an_error_has_sentences_all_the_same() -> None:
    dead = _record(status="dead", attempts=6, settled_at=None, parked=False)
    assert sentences(dead, [dead], NOBODY)[0] == "It died at an unknown time, after 6 tries: no error was kept."


def test_the_error_ends_in_one_full_stop() -> None:
    dead = _record(status="dead", attempts=2, settled_at=NOON, last_error_code="X", last_error="gone...")
    assert sentences(dead, [dead], NOBODY)[0].endswith("after 2 tries: X: gone.")


# ── helpers ──


def _record(**fields: Any) -> Record:
    known: dict[str, Any] = {
        "seq": 1,
        "status": "pending",
        "attempts": 0,
        "lane": 0,
        "created_at": NOON,
        "updated_at": NOON,
    }
    return Record(**(known | {"message": Message("order.paid", key="a")} | fields))


async def _settle_first(store: Store, verdict: Buried | Retry) -> Relay:
    """A relay that has settled the oldest message like this, and sent nothing else."""
    relay = await a_relay(store)
    claims = await relay.claim(limit=1)
    await relay.settle(claims, verdict)
    return relay


async def _bury_first(store: Store) -> Relay:
    return await _settle_first(store, PARK)


async def _one_other_lane(store: Store, now: datetime, *, but: UUID) -> None:
    """A relay that runs, and has yet to take the lane of this message."""
    (record,) = await store.ops.find(Query(ids=[but]))
    other = next(lane for lane in await store.lanes.all() if lane.lane != record.lane)
    renewed = await store.lanes.renew("relay-a", {other.lane: other.epoch}, lease=timedelta(minutes=1), now=now)
    assert renewed == {other.lane}
