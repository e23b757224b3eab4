"""What is claimed, when, and from which lanes: with a store of three answers, and a time that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from postroom.config.values import RelayConfig
from postroom.contracts.lanes import Lane
from postroom.contracts.ops import Counts
from postroom.contracts.outbox import Buried, Claim, Claimed, Retry
from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable
from postroom.events import BatchClaimed, Event, LanesLost, Listeners
from postroom.message import Message
from postroom.relay.claims import LaneClaims, Turn
from postroom.relay.owned_lanes import OwnedLanes

pytestmark = pytest.mark.anyio
POLL, SEND_SECONDS = 0.5, 3.0
LAST = 5
"""A message that was lost so often is buried when it is lost again."""


class Answers:
    """A store that says what the test told it to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.found: list[Claim] = []
        self.is_away = False
        self.asked: list[tuple[set[int], int, set[int], bool]] = []
        """Of each claim: the lanes, the limit, those in doubt, and whether it is alone."""
        self.peeks = 0
        self.has_some = False
        self.number = Counts(by_status={}, lag=timedelta(0))
        self.outbox = self.ops = self

    async def claim(
        self, owner: str, lanes: Mapping[int, int], *, limit: int, doubtful: Collection[int], alone: bool
    ) -> Sequence[Claim]:
        self.asked.append((set(lanes), limit, set(doubtful), alone))
        if self.is_away:
            raise StoreUnavailable("nobody answers")
        return [claim for claim in self.found if claim.lane in lanes]

    async def peek(self, lanes: Mapping[int, int]) -> bool:
        self.peeks += 1
        return self.has_some

    async def counts(self) -> Counts:
        return self.number


class Bench:
    """The claims of a relay that owns some lanes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lanes: int) -> None:
        self.now = 100.0
        monkeypatch.setattr("postroom.clock.time", SimpleNamespace(monotonic=lambda: self.now, time_ns=lambda: 0))
        self.store, self.owned = Answers(), OwnedLanes()
        self.owned.add([Lane(lane, 1, "me", None) for lane in lanes], self.now + 60)
        self.told: list[Event] = []
        self.changed = self.nudged = 0
        self.claims = LaneClaims(
            cast("Store", self.store),
            "me",
            self.owned,
            RelayConfig(poll=timedelta(seconds=POLL)),
            lambda attempts: Buried("CRASH_LOOP", "") if attempts > LAST else Retry(timedelta(0), "LEASE_LOST"),
            Listeners(self.told.append),
            send_seconds=SEND_SECONDS,
            changed=self._change,
            nudge=self._nudge,
        )

    def _change(self) -> None:
        self.changed += 1

    def _nudge(self) -> None:
        self.nudged += 1

    async def next(self, room: int = 4) -> Turn:
        turn = await self.claims.next(room)
        assert turn is not None
        return turn

    def is_alone(self) -> bool:
        return self.claims.next_is_alone

    async def lanes(self, room: int = 4) -> set[int] | None:
        """The lanes of the next turn."""
        turn = await self.claims.next(room)
        return None if turn is None else set(turn.lanes)

    async def carried(self, *, limit: int = 10, lost: Sequence[int] | None = ()) -> None:
        """One turn from its claim to its end."""
        turn = await self.next()
        found = await self.claims.claim(turn, limit)
        for claims in (found.back, found.clean, found.suspects):
            if claims:
                self.claims.settled(claims, lost)
        self.claims.ended(turn, cancelled=False)


Benches = Callable[..., Bench]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Benches:
    return lambda *lanes: Bench(monkeypatch, *lanes)


def claim(lane: int, *, lost: int = 0, attempts: int = 0, number: int = 1) -> Claim:
    messages = [
        Claimed(lane * 100 + each, attempts, expired=False, message=Message("order.paid")) for each in range(number)
    ]
    return Claim(lane, lane, 1, "me", lost, messages)


async def test_without_a_lane_there_is_nothing_to_claim_from(bench: Benches) -> None:
    assert await bench().claims.next(4) is None


async def test_a_lane_without_time_for_a_whole_send_is_not_claimed_from(bench: Benches) -> None:
    each = bench(1)
    each.now += 60 - SEND_SECONDS
    assert await each.lanes() is None


async def test_a_lane_is_in_one_turn_at_a_time(bench: Benches) -> None:
    each = bench(1, 2, 3, 4)
    assert await each.lanes(room=2) == {1, 2}
    assert await each.lanes(room=1) == {3, 4}
    assert await each.lanes() is None


async def test_a_claim_may_be_asked_for_while_another_is_but_no_third(bench: Benches) -> None:
    each = bench(1, 2, 3, 4, 5, 6)
    first, _ = await each.next(3), await each.next(2)
    assert await each.claims.next(1) is None
    each.store.found = [claim(lane) for lane in first.lanes]
    await each.claims.claim(first, 10)
    assert await each.lanes(1) == {5, 6}


async def test_after_a_claim_that_found_nothing_it_rests_and_then_peeks_with_all_lanes(bench: Benches) -> None:
    each = bench(1, 2, 3)
    await each.carried()
    assert await each.claims.next(4) is None
    each.now += each.claims.next_look(each.now)
    assert (await each.claims.next(4), each.store.peeks) == (None, 1), "nothing was there, so nothing is claimed"
    each.store.has_some = True
    each.now += each.claims.next_look(each.now)
    assert await each.lanes() == {1, 2, 3}


async def test_a_rest_is_longer_each_time_up_to_the_poll_and_a_hint_ends_it(bench: Benches) -> None:
    each = bench(1)
    rests = []
    await each.carried()
    for _ in range(12):
        rests.append(each.claims.next_look(each.now))
        each.now += rests[-1]
        assert await each.claims.next(4) is None
    assert rests == sorted(rests)
    assert rests[-1] == pytest.approx(POLL)
    each.claims.look()
    assert (each.changed, each.nudged) == (2, 1)
    each.store.has_some = True
    assert await each.lanes() == {1}


async def test_a_batch_is_told_of_and_what_was_found_goes_at_once(bench: Benches) -> None:
    each = bench(1, 2)
    each.store.found = [claim(1, number=3), claim(2)]
    found = await each.claims.claim(await each.next(1), 10)
    assert [claim.lane for claim in found.clean] == [1, 2]
    (told,) = each.told
    assert isinstance(told, BatchClaimed)
    assert (told.count, told.lanes) == (4, 2)


async def test_a_claim_without_an_answer_leaves_its_lanes_in_doubt_until_the_next(bench: Benches) -> None:
    """R22."""
    each = bench(1)
    each.store.is_away = True
    found = await each.claims.claim(await each.next(), 10)
    assert found == ([], [], []), "a database that is away is not an error"
    each.store.is_away, each.store.has_some = False, True
    for _ in range(2):
        each.now += 1
        await each.carried()
    assert [doubtful for _, _, doubtful, _ in each.store.asked] == [set(), {1}, set()]


async def test_a_settle_without_an_answer_leaves_its_lane_in_doubt(bench: Benches) -> None:
    """R10."""
    each = bench(1)
    each.store.found = [claim(1)]
    await each.carried(lost=None)
    await each.carried()
    assert [doubtful for _, _, doubtful, _ in each.store.asked] == [set(), {1}]


async def test_a_lane_that_a_settle_found_lost_is_given_up(bench: Benches) -> None:
    each = bench(1, 2)
    each.store.found = [claim(1), claim(2)]
    await each.carried(lost=[1])
    assert each.owned.epochs == {2: 1}
    assert each.told[-1] == LanesLost(owner="me", lanes=(1,))


async def test_the_lanes_of_a_turn_that_was_cancelled_are_in_doubt_and_go_on(bench: Benches) -> None:
    """R26."""
    each = bench(1)
    each.store.found = [claim(1)]
    turn = await each.next()
    await each.claims.claim(turn, 10)
    assert await each.claims.next(4) is None
    each.claims.ended(turn, cancelled=True)
    await each.carried()
    assert each.store.asked[-1] == ({1}, 10, {1}, False)


async def test_a_heartbeat_hears_of_a_lane_that_may_go_to_another(bench: Benches) -> None:
    each = bench(1, 2)
    each.store.found = [claim(1), claim(2)]
    turn = await each.next(1)
    found = await each.claims.claim(turn, 10)
    each.owned.to_hand_over(1)
    assert each.nudged == 0
    each.claims.settled(found.clean, [])
    assert each.nudged == 1


async def test_suspects_that_come_by_surprise_go_back_and_have_their_own_turn_in_halves(bench: Benches) -> None:
    """R8."""
    each = bench(1, 2)
    each.store.found = [claim(1, lost=1), claim(2)]
    turn = await each.next(1)
    found = await each.claims.claim(turn, 10)
    assert [[claim.lane for claim in some] for some in found] == [[2], [], [1]]
    for some in found:
        each.claims.settled(some, [])
    each.claims.ended(turn, cancelled=False)
    turns = [await each.next(), await each.next()]
    assert [turn.suspects for turn in turns] == [True, False]
    assert [set(turn.lanes) for turn in turns] == [{1}, {2}]
    found = await each.claims.claim(turns[0], 9)
    assert each.store.asked[-1] == ({1}, 5, set(), False)
    assert [claim.lane for claim in found.suspects] == [1]


async def test_those_that_travel_alone_go_one_after_the_other(bench: Benches) -> None:
    """R8."""
    each = bench(1, 2)
    each.store.found = [claim(1, lost=2), claim(2, lost=2)]
    await each.carried()
    first = await each.next()
    found = await each.claims.claim(first, 10)
    each.claims.settled(found.suspects, [])
    assert (first.suspects, len(first.lanes)) == (True, 1)
    assert await each.claims.next(4) is None, "one batch of suspects is under way until its task has ended"
    each.claims.ended(first, cancelled=False)
    assert (await each.next()).suspects


async def test_the_last_try_of_a_suspect_is_claimed_alone(bench: Benches) -> None:
    """R8."""
    each = bench(1, 2)
    each.store.found = [claim(1, lost=2, attempts=LAST), claim(2)]
    turn = await each.next(1)
    for some in await each.claims.claim(turn, 10):
        each.claims.settled(some, [])
    each.claims.ended(turn, cancelled=False)
    assert not each.is_alone(), "it was not known yet that it is the last one"
    await each.carried()
    assert each.is_alone()
    turn = await each.next()
    assert (turn.alone, set(turn.lanes)) == (True, {1})
    assert not each.is_alone()
    found = await each.claims.claim(turn, 10)
    assert each.store.asked[-1] == ({1}, 1, set(), True)
    assert [claim.lane for claim in found.suspects] == [1], "now it goes"


async def test_the_last_try_in_a_lane_that_was_lost_is_another_relays(bench: Benches) -> None:
    each = bench(1)
    each.claims._suspects.last_try = 7
    assert await each.claims.next(4) is None
    assert await each.lanes() == {1}


async def test_a_claim_is_mine_for_as_long_as_its_lane(bench: Benches) -> None:
    """R16."""
    each = bench(1)
    mine = claim(1)
    assert each.claims.is_mine(mine, 59.9)
    assert not each.claims.is_mine(mine, 60)
    each.now += 60
    assert not each.claims.is_mine(mine)


@pytest.mark.parametrize(("pending", "parked", "drained"), [(0, 0, True), (2, 2, True), (2, 1, False)])
async def test_it_is_drained_when_all_that_is_left_is_parked(
    bench: Benches, pending: int, parked: int, drained: bool
) -> None:
    each = bench(1)
    each.store.number = Counts(by_status={"pending": pending, "dead": 1}, lag=timedelta(0), parked=parked)
    assert await each.claims.is_drained() is drained


async def test_a_store_that_is_watched_is_asked_half_as_often(bench: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    each = bench(1)
    woken = asyncio.Event()

    async def watch(store: Store, wake: Callable[[], None], unwatched: Callable[[], None]) -> None:
        wake()
        woken.set()
        await asyncio.sleep(0)
        unwatched()

    monkeypatch.setattr("postroom.relay.claims.watch", watch)
    running = asyncio.create_task(each.claims.run())
    await woken.wait()
    assert each.claims.longest_look == 2 * POLL
    await running
    assert each.claims.longest_look == POLL
