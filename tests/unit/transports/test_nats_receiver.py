"""What a receiver has in flight, and what it sent back: decisions, without a server."""

from __future__ import annotations

from collections.abc import Iterable

from postroom.contracts.transport import Delivery
from postroom.message import Message
from postroom.transports.inflight import InFlightMessage
from postroom.transports.nats.receiver import PulledMessages


def pulled(place: int, key: str | None = "a", reply: str = "") -> Delivery:
    token = InFlightMessage(place, reply or f"reply-{place}", key)
    return Delivery(Message("t", key=key), "s", "t", token=token)


def places(deliveries: Iterable[Delivery]) -> list[int]:
    return [each.token.position for each in deliveries]


def test_what_came_out_of_order_is_given_in_order() -> None:
    ours = PulledMessages(10)
    for place in (4, 2, 3):
        ours.arrive(pulled(place))
    assert places(ours.give(2, 0)) == [2, 3]
    assert places(ours.give(2, 0)) == [4]


def test_no_more_is_given_than_the_prefetch() -> None:
    ours = PulledMessages(2)
    for place in range(5):
        ours.arrive(pulled(place, None))
    first = ours.give(9, 0)
    assert places(first) == [0, 1]
    assert ours.give(9, 0) == []
    assert ours.settle(first[:1])
    assert not ours.settle(first[:1])
    assert ours.settled == 1
    assert places(ours.give(9, 0)) == [2]


def test_what_is_behind_a_refused_one_of_its_key_waits_for_it() -> None:
    ours = PulledMessages(10)
    for place, key in ((1, "a"), (2, "a"), (3, "b"), (4, None)):
        ours.arrive(pulled(place, key))
    (first,) = ours.give(1, 0)
    assert ours.send_back(first, due=5.0)
    assert not ours.send_back(first, due=5.0)
    assert (len(ours), ours.waiting, ours.settled, places(ours.ours())) == (3, 3, 1, [2, 3, 4]), "the server has it"
    assert places(ours.give(9, 9)) == [3, 4], "that it is due does not bring it"
    assert (ours.is_overdue(4.0), ours.is_overdue(6.0)) == (False, True)
    ours.arrive(pulled(1))
    assert (len(ours), ours.waiting, ours.is_overdue(6.0)) == (4, 2, False)
    assert places(ours.give(9, 0)) == [1, 2]


def test_a_refused_one_that_the_stream_deleted_is_waited_for_no_more() -> None:
    ours = PulledMessages(10)
    for place in (1, 2):
        ours.arrive(pulled(place))
    (first,) = ours.give(1, 0)
    ours.send_back(first, due=5.0)
    assert ours.give(9, 0) == []
    ours.forget_refused()
    assert (places(ours.give(9, 0)), len(ours), ours.refused) == ([2], 1, {})


def test_two_refused_ones_come_back_in_order_whichever_is_sooner() -> None:
    ours = PulledMessages(10)
    for place in (1, 2):
        ours.arrive(pulled(place))
    for each in ours.give(2, 0):
        ours.send_back(each, due=0.0)
    ours.arrive(pulled(2))
    assert ours.give(9, 0) == []
    ours.arrive(pulled(1))
    assert places(ours.give(9, 0)) == [1, 2]


def test_what_comes_again_while_it_is_handled_is_not_given_twice_and_is_answered_at_the_newer_place() -> None:
    ours = PulledMessages(10)
    ours.arrive(pulled(1))
    (given,) = ours.give(1, 0)
    ours.arrive(pulled(1, reply="newer"))
    assert ours.give(9, 0) == []
    assert (given.token.receipt, len(ours)) == ("newer", 1)


def test_what_nobody_was_given_can_be_given_back() -> None:
    ours = PulledMessages(10)
    for place in (3, 1, 2, 4):
        ours.arrive(pulled(place))
    first, second = ours.give(2, 0)
    ours.send_back(second, due=5.0)
    assert places(ours.give_back()) == [3, 4], "the refused one was given back before"
    assert places(ours) == [1]
    assert (ours.settled, ours.refused) == (3, {})
    assert ours.settle([first])
