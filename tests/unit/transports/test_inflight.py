"""What every receiver does with messages in flight, against a model so simple that it is evidently right."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from postroom.contracts.transport import Delivery
from postroom.message import Message
from postroom.transports.inflight import ALWAYS, NEVER, InFlight, InFlightMessage

KEYS = ("a", "b", "a", None, "a", "b")
"""The key of each position: of three messages of a key, any may be the one in the way."""
MESSAGES = {key: Message("order.paid", key=key) for key in set(KEYS)}


def delivery(position: int, receipt: str = "", *, key: str | None = "a", redelivered: int = 0) -> Delivery:
    return Delivery(MESSAGES[key], "shop", "orders", redelivered, token=InFlightMessage(position, receipt, key))


def of_keys(*keys: str | None, prefetch: int | None = None) -> InFlight[str]:
    """One with a message of each of these keys, at the positions 0, 1, 2, …"""
    made = InFlight[str](prefetch)
    for position, key in enumerate(keys):
        made.arrive(delivery(position, key=key))
    return made


def key_at(position: int) -> str | None:
    return KEYS[position % len(KEYS)]


def positions(deliveries: Iterable[Delivery]) -> list[int]:
    return [each.token.position for each in deliveries]


# ── examples ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_they_are_given_in_order_and_no_more_than_asked_for() -> None:
    ours = of_keys("a", "b", "a")
    assert positions(ours.give(2, 0)) == [0, 1]
    assert positions(ours.give(2, 0)) == [2]
    assert ours.give(2, 0) == []


def test_what_arrives_out_of_order_is_given_in_order() -> None:
    ours = InFlight[str]()
    for position in (4, 2, 9, 3):
        ours.arrive(delivery(position))
    assert positions(ours.give(2, 0)) == [2, 3]
    assert positions(ours.give(2, 0)) == [4, 9]


def test_no_more_is_given_than_the_prefetch_has_room_for() -> None:
    ours = of_keys(*[None] * 5, prefetch=2)
    first, _ = ours.give(9, 0)
    assert ours.give(9, 0) == []
    ours.settle([first])
    assert positions(ours.give(9, 0)) == [2]


def test_a_refused_one_stops_its_key_until_it_is_due_and_no_other() -> None:
    ours = of_keys("a", "b", "a", None)
    (first,) = ours.give(1, 0)
    assert ours.refuse(first, due=10)
    assert positions(ours.give(9, 5)) == [1, 3]
    assert (ours.next_due(5), ours.next_due(10)) == (10, NEVER)
    again = ours.give(9, 10)
    assert positions(again) == [0, 2]
    assert [each.redelivered for each in again] == [1, 0]


def test_two_of_a_key_come_back_in_order_whichever_was_refused_first_and_is_due_first() -> None:
    ours = of_keys("a", "a")
    first, second = ours.give(2, 0)
    ours.refuse(second, due=1)
    ours.refuse(first, due=5)
    assert ours.give(2, 2) == []
    assert positions(ours.give(2, 5)) == [0, 1]


def test_messages_without_a_key_never_wait_for_each_other() -> None:
    ours = of_keys(None, None)
    ours.refuse(*ours.give(1, 0), due=10)
    assert positions(ours.give(9, 5)) == [1]


def test_an_ending_counts_once_and_only_for_the_delivery_it_is_said_of() -> None:
    ours = of_keys("a")
    (first,) = ours.give(1, 0)
    ours.refuse(first, due=0)
    (second,) = ours.give(1, 0)
    assert (ours.is_lost(first), ours.is_lost(second)) == (True, False)
    assert ours.settle([first]) == []
    assert not ours.refuse(first, due=0)
    assert ours.settle([second, second]) == [second]
    assert len(ours) == 0


def test_what_arrives_again_while_it_is_given_is_not_given_twice_and_is_answered_by_the_newer_receipt() -> None:
    ours = of_keys("a")
    (first,) = ours.give(1, 0)
    ours.arrive(delivery(0, "newer"))
    assert ours.give(9, 0) == []
    assert first.token.receipt == "newer"
    assert not ours.is_lost(first)


def test_what_arrives_again_while_it_waits_is_given_once_when_the_older_would_have_been_due() -> None:
    ours = of_keys("a", "a")
    ours.refuse(*ours.give(1, 0), due=5)
    ours.arrive(delivery(0, "newer"))
    assert ours.give(9, 4) == []
    given = ours.give(9, 5)
    assert [(each.token.position, each.token.receipt) for each in given] == [(0, "newer"), (1, "")]


def test_what_is_due_never_waits_until_it_arrives_again() -> None:
    ours = of_keys("a", "a")
    ours.refuse(*ours.give(1, 0), due=NEVER)
    assert ours.give(9, 1e9) == []
    ours.arrive(delivery(0, "newer"))
    assert positions(ours.give(9, 0)) == [0, 1]


def test_what_was_taken_back_was_not_delivered() -> None:
    ours = of_keys("a", "b")
    taken = ours.give(2, 0)
    ours.settle(taken[1:])
    ours.take_back(taken)
    assert ours.give(2, 0) == taken[:1], "the other was settled"
    assert taken[0].redelivered == 0


def test_a_delivery_is_known_by_its_token_whoever_changed_the_rest_of_it() -> None:
    ours = of_keys("a", "a")
    first, second = (replace(each, redelivered=7) for each in ours.give(2, 0))
    assert not ours.is_lost(first)
    assert positions(ours.behind(first)) == [0, 1]
    assert ours.refuse(first, due=0)
    (again,) = ours.give(1, 0)
    assert (again.redelivered, ours.is_lost(first)) == (1, True)
    ours.lost([second, replace(again, redelivered=7)])
    assert len(ours) == 0


def test_what_is_behind_is_what_came_later_with_its_key_given_or_not() -> None:
    ours = of_keys("a", "b", "a", None, "a")
    first, _, third = ours.give(3, 0)
    assert positions(ours.behind(first)) == [0, 2, 4]
    assert positions(ours.behind(third)) == [2, 4]
    without = next(each for each in ours if each.message.key is None)
    assert ours.behind(without) == [without]
    ours.lost([first, without])
    assert ours.behind(first) == ours.behind(without) == []
    assert positions(ours) == [1, 2, 4]


# ── any life, against the model ────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Known:
    """A message, as the model has it."""

    position: int
    serial: str
    key: Hashable
    due: float = ALWAYS
    redelivered: int = 0
    is_given: bool = False


class Model:
    """The rules, without a thought for speed."""

    def __init__(self, prefetch: int | None) -> None:
        self.prefetch = prefetch
        self.all: list[Known] = []

    def arrive(self, position: int, serial: str) -> None:
        old = next((each for each in self.all if each.position == position), None)
        if old is None:
            self.all.append(Known(position, serial, key_at(position)))
        elif not old.is_given:
            due = ALWAYS if old.due == NEVER else old.due
            self.all[self.all.index(old)] = Known(position, serial, old.key, due)

    def give(self, limit: int, now: float) -> list[Known]:
        given = [each for each in self.all if each.is_given]
        room = limit if self.prefetch is None else min(limit, self.prefetch - len(given))
        blocked, taken = set[Hashable](), list[Known]()
        for each in sorted(self.all, key=lambda known: known.position):
            if each.is_given or len(taken) >= room:
                continue
            if each.due > now or (each.key is not None and each.key in blocked):
                blocked.add(each.key)
            else:
                taken.append(each)
        for each in taken:
            each.is_given = True
        return taken

    def refuse(self, known: Known, due: float) -> None:
        again = replace(known, due=due, redelivered=known.redelivered + 1, is_given=False)
        self.all[self.all.index(known)] = again

    def has(self, known: Known) -> bool:
        return any(each is known for each in self.all)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive_next")),
        st.tuples(st.just("arrive_next")),
        st.tuples(st.just("arrive"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["arrive_again", "lost_waiting"]), st.integers(0, 4)),
        st.tuples(st.just("give"), st.integers(1, 4)),
        st.tuples(st.just("give"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["settle", "take_back", "lost", "behind"]), st.integers(0, 4)),
        st.tuples(st.just("refuse"), st.integers(0, 4), st.sampled_from([0, 2, 3, NEVER])),
        st.tuples(st.just("lose_all")),
    ),
    min_size=8,  # else most lives are too short for anything to happen in them
    max_size=30,
)


def seen(deliveries: Iterable[Delivery]) -> list[tuple[Any, ...]]:
    return [(each.token.position, each.topic, each.redelivered) for each in deliveries]


def expected(known: Iterable[Known]) -> list[tuple[Any, ...]]:
    in_order = sorted(known, key=lambda each: each.position)
    return [(each.position, each.serial, each.redelivered) for each in in_order]


class Life:
    """One buffer and its model, which live the same life. The topic of a delivery is the serial number of its arrival."""

    def __init__(self, made: InFlight[str], prefetch: int | None) -> None:
        self.buffer, self.model = made, Model(prefetch)
        self.handed: list[tuple[Delivery, Known]] = []
        """All that were ever handed out."""
        self.now = self.next_position = 0

    def step(self, name: str, number: int = 0, delay: float = 0) -> None:
        self.now += 1
        if name in ("arrive", "arrive_next", "arrive_again", "give", "lost_waiting", "lose_all"):
            getattr(self, name)(number)
        elif self.handed:
            handed, known = self.handed[-1 - number % len(self.handed)]
            is_ours = self.model.has(known) and known.is_given
            getattr(self, name)(handed, known, is_ours, delay)

    def arrive(self, position: int) -> None:
        came = delivery(position, str(self.now), key=key_at(position))
        self.next_position = max(self.next_position, position + 1)
        self.buffer.arrive(replace(came, topic=str(self.now)))
        self.model.arrive(position, str(self.now))

    def arrive_next(self, _: int) -> None:
        self.arrive(self.next_position)

    def arrive_again(self, number: int) -> None:
        if self.model.all:
            self.arrive(self.model.all[number % len(self.model.all)].position)

    def lost_waiting(self, number: int) -> None:
        """Whatever is in flight, most of which waits."""
        if self.model.all:
            known = self.model.all[number % len(self.model.all)]
            self.buffer.lost([each for each in self.buffer if each.token.position == known.position])
            self.model.all = [each for each in self.model.all if each is not known]

    def give(self, limit: int) -> None:
        got, known = self.buffer.give(limit, self.now), self.model.give(limit, self.now)
        assert seen(got) == expected(known)
        self.handed += zip(got, known, strict=True)

    def settle(self, handed: Delivery, known: Known, is_ours: bool, _: float) -> None:
        assert self.buffer.settle([handed]) == ([handed] if is_ours else [])
        if is_ours:
            self.model.all.remove(known)

    def refuse(self, handed: Delivery, known: Known, is_ours: bool, delay: float) -> None:
        assert self.buffer.refuse(handed, due=self.now + delay) == is_ours
        if is_ours:
            self.model.refuse(known, self.now + delay)

    def take_back(self, handed: Delivery, known: Known, is_ours: bool, _: float) -> None:
        self.buffer.take_back([handed])
        if is_ours:
            known.is_given = False

    def lost(self, handed: Delivery, known: Known, _: bool, __: float) -> None:
        """Also one that was settled, refused or lost before: then nothing happens."""
        self.buffer.lost([handed])
        self.model.all = [each for each in self.model.all if each is not known]

    def behind(self, handed: Delivery, known: Known, _: bool, __: float) -> None:
        wanted = [
            each
            for each in self.model.all
            if each is known or (known.key is not None and each.key == known.key and each.position > known.position)
        ]
        assert seen(self.buffer.behind(handed)) == (expected(wanted) if self.model.has(known) else [])

    def lose_all(self, _: int) -> None:
        assert seen(self.buffer.lose_all()) == expected(self.model.all)
        self.model.all = []

    def check(self) -> None:
        """All that can be asked is answered as by the model."""
        given = [each for each in self.model.all if each.is_given]
        waiting = [each for each in self.model.all if not each.is_given]
        assert seen(self.buffer) == expected(self.model.all)
        assert (self.buffer.given, self.buffer.waiting, len(self.buffer)) == (
            len(given),
            len(waiting),
            len(self.model.all),
        )
        assert self.buffer.next_due(self.now) == min(
            (each.due for each in waiting if each.due > self.now), default=NEVER
        )
        for handed, known in self.handed:
            assert self.buffer.is_lost(handed) == (not known.is_given or not self.model.has(known))


def live(make: Callable[[int | None], InFlight[str]], prefetch: int | None, steps: list[tuple[Any, ...]]) -> None:
    life = Life(make(prefetch), prefetch)
    for each in steps:
        life.step(*each)
        life.check()


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([None, 1, 3]), STEPS)
def test_any_life_is_the_life_of_the_model(prefetch: int | None, steps: list[tuple[Any, ...]]) -> None:
    live(InFlight, prefetch, steps)


# ── buffers with one thing wrong, which that test must notice ──────────────────────────────────────────────────────────


class Saboteur(InFlight[str]):
    every: ClassVar[list[type[Saboteur]]] = []

    def __init_subclass__(cls) -> None:
        cls.every.append(cls)


class LetsAKeyPassItsRefusedOne(Saboteur):
    def _take_back_due(self, room: int, now: float) -> tuple[list[Delivery], set[Hashable]]:
        return super()._take_back_due(room, now)[0], set()


class GivesBeforeItIsDue(Saboteur):
    def give(self, limit: int, now: float) -> list[Delivery]:
        return super().give(limit, now + 1)


class ForgetsThePrefetch(Saboteur):
    def __init__(self, prefetch: int | None = None) -> None:
        super().__init__(None)


class GivesTheRefusedLast(Saboteur):
    def refuse(self, delivery: Delivery, *, due: float) -> bool:
        if not self.settle([delivery]):
            return False
        token = replace(delivery.token, due=due, turn=delivery.token.turn + 1)
        self._back.append(replace(delivery, redelivered=delivery.redelivered + 1, token=token))
        return True


class TakesEveryDeliveryOfAMessageForTheSame(Saboteur):
    def settle(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        return [each for each in deliveries if self._given.pop(each.token.position, None) is not None]


class SettlesWhatIsLost(Saboteur):
    def settle(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        super().settle(found := list(deliveries))
        return found


class GivesTwiceWhatArrivesTwice(Saboteur):
    def arrive(self, delivery: Delivery) -> None:
        self._given.pop(delivery.token.position, None)
        super().arrive(delivery)


class CountsNoRedelivery(Saboteur):
    def _insert(self, delivery: Delivery) -> None:
        super()._insert(replace(delivery, redelivered=0))


class KeepsWhatIsLostWhileItWaits(Saboteur):
    def lost(self, deliveries: Iterable[Delivery]) -> None:
        self.settle(deliveries)


class GivesInTheOrderOfArrival(Saboteur):
    def arrive(self, delivery: Delivery) -> None:
        self._fresh.append(delivery)


class ForgetsTheTimeOfWhatArrivesAgain(Saboteur):
    def arrive(self, delivery: Delivery) -> None:
        self._back = [each for each in self._back if each.token.position != delivery.token.position]
        super().arrive(delivery)


class WaitsForeverForWhatWasSentBack(Saboteur):
    def arrive(self, delivery: Delivery) -> None:
        super().arrive(delivery)
        for each in self._back:
            each.token.due = NEVER if each.token.turn else each.token.due


class SaysThatNothingWillBeDue(Saboteur):
    def next_due(self, now: float) -> float:
        return NEVER


class CountsWhatWasTakenBack(Saboteur):
    def take_back(self, deliveries: Iterable[Delivery]) -> None:
        for each in deliveries:
            self.refuse(each, due=ALWAYS)


class ForgetsWhatIsBehind(Saboteur):
    def behind(self, delivery: Delivery) -> list[Delivery]:
        return super().behind(delivery)[:1]


@pytest.mark.parametrize("saboteur", Saboteur.every, ids=lambda each: each.__name__)
def test_whoever_breaks_a_rule_is_caught(saboteur: type[Saboteur]) -> None:
    everything = settings(
        max_examples=2_000,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )

    @everything
    @given(st.sampled_from([None, 1, 3]), STEPS)
    def lives(prefetch: int | None, steps: list[tuple[Any, ...]]) -> None:
        live(saboteur, prefetch, steps)

    with pytest.raises(AssertionError):
        lives()
