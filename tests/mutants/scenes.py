"""Scenes: what can go wrong around a relay, and what must be true then. Each names the rules it is there for.

An honest relay plays all of them through; `table.py` says which one stops a relay with a rule taken out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from tests.mutants import virtual
from tests.mutants.world import LEASE, SEND, TRIES, Answer, World, failing

from postroom.clock import utcnow
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Retry
from postroom.contracts.transport import Failed, Outcome, Rejected, Unavailable
from postroom.errors import PostroomError
from postroom.message import Message
from postroom.relay.settler import PAUSE_SECONDS

Scene = Callable[[World], Awaitable[None]]
LANES = {
    "a_poison_message_takes_no_innocents_with_it": 4,
    "a_poison_message_in_the_first_lane_takes_no_innocents_with_it": 4,
    "the_last_try_of_a_suspect_has_nothing_beside_it": 4,
    "lanes_are_shared_and_handed_over_drained": 4,
}
"""How many lanes the store of a scene has: one, but for these."""


# ── the lease: R2, R7, R9, R10, R16 ──


async def nothing_is_sent_past_the_lease(world: World) -> None:
    """R9, R10, R16. The heartbeat gets no answer any more, and work goes on: the last send ends before the lease does."""
    world.start("relay", lambda *_: Answer(seconds=SEND * 0.9))
    await world.put("a")
    await world.until(world.settled)
    world.doors["relay"][1].shut = True
    silent = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < silent + 2 * LEASE:
        await world.put("a")
        await asyncio.sleep(0.3)
    assert not world.wrong, world.wrong[0]
    assert len(world.delivered()) > 2, "it worked as long as it might"


async def the_way_of_a_renewal_counts_against_the_lease(world: World) -> None:
    """R9. The answers to renewals travel for a while; the lease runs from before the call."""
    world.start("relay", lambda *_: Answer(seconds=0.3))
    await world.put("a")
    await world.until(world.settled)
    heart = world.doors["relay"][1]
    heart.slow["renew"] = 1.8
    await asyncio.sleep(LEASE)
    heart.shut = True
    silent = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < silent + 2 * LEASE:
        await world.put("a")
        await asyncio.sleep(0.1)
    assert not world.wrong, world.wrong[0]


async def a_quiet_relay_keeps_its_lanes(world: World) -> None:
    """R9. Ten leases long nothing happens: the lane is renewed, never taken anew."""
    world.start("relay")
    await asyncio.sleep(10 * LEASE)
    (lane,) = await world.store.lanes.all()
    assert lane.epoch == 1
    assert lane.lease_until is not None
    assert lane.lease_until > utcnow()


async def what_is_left_of_a_batch_is_not_sent_in_a_lane_that_was_lost(world: World) -> None:
    """R10, R16. The batch goes in two rounds; in the first, a rival takes the lane, and the heartbeat hears of it."""
    world.start("relay", lambda *_: Answer(seconds=1.1 * SEND), lambda *_: None, patterns=("x.*", "y.*"))
    await asyncio.sleep(LEASE / 4)  # so that the next beat comes while the first round is on its way
    await world.put("a", type="x.made")
    await world.put("a", type="y.made")
    await world.until(lambda: world.asked[0])
    await world.store.lanes.take(
        "rival", limit=9, lease=timedelta(hours=1), lost=later, now=utcnow() + timedelta(hours=1)
    )
    await asyncio.sleep(LEASE)
    assert not world.wrong, world.wrong[0]
    assert world.asked[1] == 0, "the second round began in a lane of another relay"


async def an_old_batch_ends_when_its_lane_is_taken_anew(world: World) -> None:
    """R7. The lane is lost and taken again by the same relay, while the first round of a batch still hangs."""
    world.start("relay", lambda *_: Answer(seconds=1.1 * SEND), lambda *_: None, patterns=("x.*", "y.*"))
    await world.put("a", type="x.made")
    await world.put("a", type="y.made")
    await world.until(lambda: world.asked[0])
    relay = world.relays["relay"]
    far = utcnow() + timedelta(hours=1)
    await world.store.lanes.take(relay.owner, limit=9, lease=timedelta(seconds=LEASE), lost=later, now=far)
    taken = await world.store.lanes.all()
    relay._owned.add(taken, asyncio.get_running_loop().time() + LEASE)
    await asyncio.sleep(LEASE / 2)
    assert not world.wrong, world.wrong[0]
    assert world.asked[1] == 0, "the old batch went on under the new epoch"


async def a_lane_given_up_comes_back_by_taking_it_anew(world: World) -> None:
    """R10. The database is away for longer than the lease, in the middle of a batch; then it is back."""
    world.start("relay", lambda *_: Answer(seconds=SEND / 2))
    await world.put("a", "a")
    await world.until(lambda: world.asked[0])
    world.cut_off("relay")
    await asyncio.sleep(LEASE + 3 * SEND)
    world.cut_off("relay", shut=False)
    await world.until(world.settled)
    world.check(m0=1, m1=1)
    (lane,) = await world.store.lanes.all()
    assert lane.epoch == 2


async def a_lane_slept_through_is_given_up_and_not_renewed(world: World) -> None:
    """R10. Stopped for two leases between the send and its settle, alone in the world: the work is dropped, so the lane
    must be taken anew, which counts the attempt; renewed, the claim would be dropped untouched, and sent again for free."""
    world.start("relay")
    world.doors["relay"][0].next["settle"].extend(["refused"] * 5)
    await world.put("a", "a")
    await world.until(lambda: len(world.delivered()) == 2)
    virtual.sleep_through(2 * LEASE)
    await world.until(world.settled)
    world.check(**{f"m{number}": tries - 1 for number, tries in enumerate(world.tries())})
    (lane,) = await world.store.lanes.all()
    assert lane.epoch == 2


async def a_renewal_that_is_answered_past_the_deadline_comes_too_late(world: World) -> None:
    """R10. The settle gives up when the lane's deadline passes; a moment later a renewal is answered that was asked for
    in time. The lane is given up all the same: its claim is still there, and only who takes the lane anew lets it go."""
    world.start("relay")
    work, heart = world.doors["relay"]
    work.next["settle"].extend(["refused"] * 500)
    heart.slow["renew"], heart.lingers = LEASE, LEASE / 12
    await world.put("a")
    await asyncio.sleep(LEASE * 0.7)
    heart.slow["renew"] = LEASE * 0.3
    await asyncio.sleep(LEASE * 0.4)
    heart.slow.clear()
    work.next.clear()
    await world.until(world.settled)
    world.check(m0=1)
    (lane,) = await world.store.lanes.all()
    assert lane.epoch == 2, "the lane was kept, with an old claim in it"


async def two_relays_of_one_name_are_two(world: World) -> None:
    """R2. A name is for people: who owns a lane is told by more."""
    world.start("relay")
    first = world.relays["relay"]
    world.start("relay")
    await asyncio.sleep(LEASE)
    assert len(await world.store.lanes.relays()) == 2
    assert first.owner != world.relays["relay"].owner


# ── sending: R17, R18, R19 ──


async def a_failure_stops_its_key_whatever_the_route(world: World) -> None:
    """R17. The head of the key fails on one route; the next one would go by another."""
    world.start("relay", failing(0, times=2), lambda *_: None, patterns=("x.*", "y.*"))
    await world.put("a", type="x.made")
    await world.put("a", type="y.made")
    await world.until(world.settled)
    world.check()


async def the_next_of_a_key_waits_for_the_answer(world: World) -> None:
    """R17. One route is slow and the other quick: the key is one line all the same."""
    world.start("relay", lambda *_: Answer(seconds=SEND / 2), lambda *_: None, patterns=("x.*", "y.*"))
    for kind in "xyxy":
        await world.put("a", type=f"{kind}.made")
    await world.until(world.settled)
    world.check()


async def an_answer_that_never_came_is_no_success(world: World) -> None:
    """R18. The broker lost the message, and nobody knows."""
    lost = Answer(Failed("TIMEOUT", unknown=True), effect=False)
    world.start("relay", lambda _, time: lost if time == 1 else None)
    await world.put("a", "a")
    await world.until(world.settled)
    world.check()


async def a_transport_that_does_not_answer_is_no_success(world: World) -> None:
    """R18. It hangs, the relay cuts it off, and the message is tried again."""
    world.start("relay", lambda _, time: Answer(seconds=5 * SEND, effect=False) if time == 1 else None)
    await world.put("a")
    await world.until(world.settled)
    world.check()


async def a_broker_that_is_away_costs_no_attempt(world: World) -> None:
    """R18. It is away far longer than all tries would last."""
    world.start("relay", lambda _, time: Unavailable() if time <= 3 * TRIES else None)
    await world.put("a", "a")
    await world.until(world.settled, seconds=600)
    world.check()
    assert world.tries() == [1, 1]


async def one_broker_of_two_that_is_away_costs_no_attempt(world: World) -> None:
    """R18. The other route goes on meanwhile."""
    away = Unavailable(retry_after=timedelta(seconds=0.1))
    world.start("relay", lambda _, time: away if time <= 3 * TRIES else None, lambda *_: None, patterns=("x.*", "y.*"))
    await world.put("a", type="x.made")
    await world.put("b", type="y.made")
    await world.until(world.settled, seconds=600)
    world.check()
    assert world.tries() == [1, 1]


# ── settling: R19, R21, R22, R23 ──


async def a_settle_that_was_refused_is_repeated(world: World) -> None:
    """R19, R21. The database is away for a moment after the send: only the settle is repeated."""
    world.start("relay", lambda *_: Answer(seconds=SEND * 0.4))
    world.doors["relay"][0].next["settle"].extend(["refused"] * 3)
    await world.put("a", "a")
    await world.until(world.settled)
    world.check()


async def a_database_that_is_away_is_not_hammered(world: World) -> None:
    """R21. It refuses at once, for two seconds: the settle is repeated a few times a second, and no more."""
    world.start("relay")
    refused = world.doors["relay"][0].next["settle"]
    refused.extend(["refused"] * 1_000)
    await world.put("a")
    await world.until(world.delivered)
    await asyncio.sleep(2)
    asked = 1_000 - len(refused)
    assert 5 <= asked <= 2 / PAUSE_SECONDS + 1, f"it was asked {asked} times"
    refused.clear()
    await world.until(world.settled)
    world.check()


async def a_settle_whose_answer_was_lost_counts_once(world: World) -> None:
    """R21. It was carried out, and nobody said so."""
    world.start("relay", failing(0, times=1))
    world.doors["relay"][0].next["settle"].append("lost")
    await world.put("a", "a")
    await world.until(world.settled)
    world.check()
    assert world.tries() == [2, 1]


async def a_claim_whose_answer_was_lost_comes_back(world: World) -> None:
    """R22. The claim is there, and nobody holds it: it is dropped, and costs nothing."""
    world.start("relay")
    world.doors["relay"][0].next["claim"].append("lost")
    await world.put("a", "a")
    await world.until(world.settled)
    world.check()
    assert world.tries() == [1, 1]


async def what_is_cancelled_from_inside_is_a_failed_try(world: World) -> None:
    """R26. What the publisher waits for is cancelled, by nobody of ours: the trip goes on, and its lane with it."""
    world.start("relay", lambda message, time: _cancelled() if (message.data, time) == (0, 1) else None)
    await world.put("a", "a")
    await world.until(world.settled)
    world.check()
    assert world.tries() == [2, 2]


async def a_trip_that_is_cancelled_lets_go_of_its_lane(world: World) -> None:
    """R26. Somebody's code cancels the very task that carries: its lane is in doubt, and moves on."""
    world.start("relay", lambda *_: Answer(seconds=SEND / 2))
    await world.put("a")
    await world.until(lambda: world.asked[0])
    for task in world.relays["relay"]._trips:
        task.cancel()
    await world.until(world.settled)
    world.check(m0=1)


async def a_relay_whose_heartbeat_ends_ends_too(world: World) -> None:
    """R26. Without it no lane is ever kept, or given up: better an error that a person sees."""
    relay = world.start("relay")
    await world.put("a")
    await world.until(world.settled)
    heartbeat = next(task for task in asyncio.all_tasks() if "Heartbeat.run" in repr(task))
    heartbeat.cancel()
    await world.until(lambda: world.tasks["relay"].done() or relay._stopping.is_set(), seconds=LEASE)
    with pytest.raises(PostroomError, match="heartbeat"):
        await world.tasks.pop("relay")


async def a_message_has_as_many_tries_as_it_was_given(world: World) -> None:
    """R13, R23. Then it is dead, and its key waits for a person."""
    world.start("relay", failing(0))
    await world.put("a", "a", "b")
    await world.until(lambda: world.statuses() == ["dead", "pending", "published"])
    await asyncio.sleep(LEASE)
    world.check()
    assert world.asked[0] == world.tries()[0] == TRIES


async def a_rejected_message_is_not_tried_again(world: World) -> None:
    """R13, R23. Dead at once; the later ones of its key come when a person has dealt with it."""
    refuse = True
    world.start("relay", lambda message, _: Rejected("NO") if refuse and message.data == 0 else None)
    await world.put("a", "a", "b")
    await world.until(lambda: world.statuses() == ["dead", "pending", "published"])
    await asyncio.sleep(LEASE)
    assert world.asked[0] == 1
    world.check()
    refuse = False
    await world.store.ops.requeue(Query(status="dead"))
    await world.until(world.settled)
    world.check()


async def a_broken_message_lets_nobody_of_its_key_pass(world: World) -> None:
    """R13, R23. It is found before anything is sent; the ones behind it wait as behind any dead one."""
    world.start("relay", patterns=("order.*",))
    await world.put("a", type="nobody.knows")
    await world.put("a")
    await world.until(lambda: world.statuses()[0] == "dead")
    await asyncio.sleep(LEASE)
    world.check()
    assert world.delivered() == []


async def what_is_past_its_time_is_not_sent(world: World) -> None:
    """R23. It is settled as expired, and its key goes on."""
    await world.put("a", expires_at=utcnow() + timedelta(seconds=1))
    await world.put("a")
    await asyncio.sleep(5)
    world.start("relay")
    await world.until(world.settled)
    world.check()
    assert world.statuses() == ["expired", "published"]
    assert world.delivered() == [1]


# ── one claim per lane, and who travels with whom: R8, R11 ──


async def a_lane_is_claimed_once_at_a_time(world: World) -> None:
    """R11. While a batch of the lane is sent, the relay does not ask for more of it, whatever the store would give."""
    world.start("relay", lambda *_: Answer(seconds=SEND / 2))
    await world.put("a", "a")
    await world.until(world.settled)
    world.check()


async def a_poison_message_takes_no_innocents_with_it(world: World) -> None:
    """R6, R8. Message 0 kills its relay, each time. What was lost with it goes in halves, then alone; it alone dies."""
    await _poisoned(world, "a", "b", "d", "e", "k", "f", "g", "i")  # "a" is in the last lane, and the only one there


async def a_poison_message_in_the_first_lane_takes_no_innocents_with_it(world: World) -> None:
    """R8. Several are suspects, each in a lane of its own: while one travels alone, the others must not even be claimed."""
    await _poisoned(world, "d", "b", "e", "a", "k", "g", "c", "i")  # "d" is in the first lane, and the only one there


async def the_last_try_of_a_suspect_has_nothing_beside_it(world: World) -> None:
    """R8. While others flow all the time: who would be buried for this loss must be the only one that it can be blamed on."""
    beside = await _poisoned(world, "d", "b", "e", busy="bk")
    assert beside[-1] == 0, f"{beside} were in flight beside it"
    assert max(beside) > 0, "nobody was ever beside it: the others did not go on"


async def _poisoned(world: World, *keys: str, busy: str = "") -> list[int]:
    """The message of the first key kills each relay that sends it, and messages of the busy keys come all the time. How many
    other claims that relay had in flight each time."""
    victims: list[str] = []
    beside: list[int] = []

    def kill(message: Message, time: int) -> Outcome | Answer | None:
        if message.data != 0:
            return Answer(seconds=SEND / 2)
        owner = world.relays[victims[-1]].owner
        beside.append(sum(claim.owner == owner for claim, _ in world.store.outbox._claims.values()) - 1)
        world.cut_off(victims[-1])
        return Answer(seconds=10_000, effect=False)

    await world.put(*keys)
    coming = asyncio.get_running_loop().create_task(_keep_putting(world, busy, every=SEND * 0.4))
    for number in range(TRIES + 1):
        victims.append(f"relay-{number}")
        world.start(victims[-1], kill)
        await world.until(lambda: world.doors[victims[-1]][0].shut or world.statuses()[0] == "dead")
    coming.cancel()
    await world.until(world.settled)
    assert world.records()[0].last_error_code == "CRASH_LOOP"
    assert world.asked[0] == TRIES
    assert set(world.statuses()[1:]) == {"published"}
    world.check(**{f"m{innocent}": TRIES for innocent in range(1, len(world.records()))})
    return beside


# ── ending and sharing: R24 ──


async def a_clean_stop_settles_what_it_sent(world: World) -> None:
    """R24. Told to end in the middle of a send: it is settled, the lanes are free, and nothing comes again."""
    world.start("relay", lambda *_: Answer(seconds=SEND / 2))
    await world.put("a", "b")
    await world.until(lambda: world.asked[0])
    await world.stop("relay")
    assert world.statuses() == ["published", "published"]
    assert [(lane.owner, lane.epoch) for lane in await world.store.lanes.all()] == [(None, 1)]
    assert not list(await world.store.lanes.relays())
    world.start("next")
    await asyncio.sleep(2 * LEASE)
    world.check()


async def lanes_are_shared_and_handed_over_drained(world: World) -> None:
    """R24. A second relay comes: lanes over the fair share are handed over, each when nothing of it is in flight."""
    world.start("first", lambda *_: Answer(seconds=SEND / 2))
    await asyncio.sleep(LEASE)
    busy = asyncio.get_running_loop().create_task(_keep_putting(world))
    await asyncio.sleep(LEASE)
    world.start("second", lambda *_: Answer(seconds=SEND / 2))
    await asyncio.sleep(3 * LEASE)
    owners = [lane.owner for lane in await world.store.lanes.all()]
    busy.cancel()
    assert sorted(map(owners.count, {world.relays["first"].owner, world.relays["second"].owner})) == [2, 2]
    await world.until(world.settled)
    world.check()
    assert set(world.tries()) == {1}


def _cancelled() -> Outcome:
    raise asyncio.CancelledError


async def _keep_putting(world: World, keys: str = "abde", every: float = 0.2) -> None:
    while True:
        await world.put(*keys)
        await asyncio.sleep(every)


def later(attempts: int) -> Retry:
    """What a rival makes of messages that were in flight: they wait for longer than the scene lasts."""
    return Retry(timedelta(hours=5), "LEASE_LOST")


def scenes() -> dict[str, Scene]:
    """All of them, by name: the public functions above that take a world."""
    return {
        name: scene
        for name, scene in globals().items()
        if asyncio.iscoroutinefunction(scene) and scene.__module__ == __name__ and not name.startswith("_")
    }
