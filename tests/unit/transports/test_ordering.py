"""Of each key one message goes at a time, and the first that is not sent stops its key, and no other."""

from __future__ import annotations

from itertools import dropwhile

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Failed, Outcome, Rejected, Sent, Unavailable
from postroom.transports.ordering import KeyOrder, by_key

SENT, LATE, TOO_LARGE, AWAY = Sent(), Failed("TIMEOUT", unknown=True), Rejected("PAYLOAD_TOO_LARGE"), Unavailable()
KEYS = st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=12)
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from([SENT, SENT, SENT, LATE, TOO_LARGE, AWAY])


class GoesOnAfterAFailure(KeyOrder):
    def settle(self, place: int, outcome: Outcome) -> int | None:
        self.outcomes[place] = outcome
        return self._next.get(place)


class StopsTheNextAlone(KeyOrder):
    def settle(self, place: int, outcome: Outcome) -> int | None:
        later = super().settle(place, outcome)
        for other in list(self.behind(place))[1:]:
            self.outcomes[other] = NOT_STARTED
        return later


class TakesNoKeyForAKey(KeyOrder):
    def __init__(self, keys: list[str | None]) -> None:
        super().__init__([key or "" for key in keys])


class SendsAKeyAtOnce(KeyOrder):
    def __init__(self, keys: list[str | None]) -> None:
        super().__init__(keys)
        self.first = list(range(len(keys)))


class ForgetsTheSecondOfAKey(KeyOrder):
    def settle(self, place: int, outcome: Outcome) -> int | None:
        later = super().settle(place, outcome)
        return None if later is None else self._next.get(later)


def check(kind: type[KeyOrder], data: st.DataObject) -> None:
    """Send a batch whose answers come in any order, and look at what was under way together and at what came of it."""
    keys = data.draw(KEYS)
    order = kind(keys)
    under_way, begun = list(order.first), list(order.first)
    while under_way:
        named = [keys[place] for place in under_way if keys[place] is not None]
        assert len(named) == len(set(named)), "two messages of one key were under way at once"
        place = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
        assert order.outcomes[place] is NOT_STARTED, "a message was sent twice, or behind one that failed"
        later = order.settle(place, data.draw(OUTCOMES))
        if later is not None:
            under_way.append(later)
            begun.append(later)
    for places in chains(keys):
        outcomes = [order.outcomes[place] for place in places]
        failed = list(dropwhile(lambda outcome: outcome == SENT, outcomes))
        assert failed[1:] == [KEY_STOPPED] * len(failed[1:]), "behind the first that was not sent its key does not stop"
        assert failed[:1] not in ([KEY_STOPPED], [NOT_STARTED]), (
            "a message was left out, though nothing before it failed"
        )
        assert [place for place in begun if place in places] == places[: len(outcomes) - len(failed[1:])], (
            "out of order"
        )


def chains(keys: list[str | None]) -> list[list[int]]:
    """The places of each key, and each place without a key by itself: written as plainly as it can be said."""
    named = [[place for place, each in enumerate(keys) if each == key] for key in sorted({*filter(None, keys)})]
    return [*named, *([place] for place, key in enumerate(keys) if key is None)]


@given(st.data())
def test_the_first_failure_of_a_key_stops_that_key_and_no_other(data: st.DataObject) -> None:
    check(KeyOrder, data)


@pytest.mark.parametrize(
    "kind", [GoesOnAfterAFailure, StopsTheNextAlone, TakesNoKeyForAKey, SendsAKeyAtOnce, ForgetsTheSecondOfAKey]
)
def test_the_check_finds_an_order_that_is_wrong(kind: type[KeyOrder]) -> None:
    @settings(
        database=None,
        max_examples=500,
        suppress_health_check=[HealthCheck.too_slow],
        report_multiple_bugs=False,
        phases=[Phase.generate],  # that there is an example is enough: making it small takes most of the time
    )
    @given(st.data())
    def wrong(data: st.DataObject) -> None:
        check(kind, data)

    with pytest.raises(AssertionError):
        wrong()


@given(KEYS)
def test_what_is_behind_a_message_is_the_rest_of_its_key(keys: list[str | None]) -> None:
    order = KeyOrder(keys)
    assert {place: [place, *order.behind(place)] for place in order.first} == {each[0]: each for each in chains(keys)}
    assert order.first == sorted(order.first)


def test_the_next_of_a_key_is_found_and_messages_without_a_key_have_none() -> None:
    assert by_key(["a", None, "a", "b", None, "a"]) == ([0, 1, 3, 4], {0: 2, 2: 5})
    assert by_key([]) == ([], {})
