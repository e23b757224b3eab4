"""What a receiver has in hand: keys stay in order through refusals, and acknowledgements need few words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroom.contracts.transport import Delivery
from postroom.message import Message
from postroom.transports.amqp.inflight import InFlight


def shelf_of(*keys: str | None) -> InFlight:
    shelf = InFlight()
    for tag, key in enumerate(keys, 1):
        shelf.arrive(tag, Delivery(Message("a", key=key, data=tag), "s", "t"))
    return shelf


def tags(deliveries: list[Delivery]) -> list[int]:
    return [delivery.token.tag for delivery in deliveries]


def test_they_come_in_order_and_no_more_than_asked_for() -> None:
    shelf = shelf_of("a", "b", "a")
    assert tags(shelf.take(2, 0)) == [1, 2]
    assert tags(shelf.take(2, 0)) == [3]
    assert shelf.take(2, 0) == []


def test_a_refused_one_holds_up_its_key_until_it_is_due_and_no_other() -> None:
    shelf = shelf_of("a", "b", "a", None)
    (first,) = shelf.take(1, 0)
    shelf.put_back(first.token, 10.0)
    assert tags(shelf.take(9, 5)) == [2, 4]
    assert shelf.next_due(5) == 10.0
    again = shelf.take(9, 10)
    assert tags(again) == [1, 3]
    assert [delivery.redelivered for delivery in again] == [1, 0]
    assert shelf.next_due(10) is None


def test_messages_without_a_key_never_wait_for_each_other() -> None:
    shelf = shelf_of(None, None)
    (first,) = shelf.take(1, 0)
    shelf.put_back(first.token, 10.0)
    assert tags(shelf.take(9, 5)) == [2]


def test_two_of_a_key_refused_in_the_wrong_order_come_in_the_right_one() -> None:
    shelf = shelf_of("a", "a")
    first, second = shelf.take(2, 0)
    shelf.put_back(second.token, 1.0)
    shelf.put_back(first.token, 5.0)
    assert shelf.take(2, 2) == []
    assert tags(shelf.take(2, 5)) == [1, 2]


def test_a_delivery_is_out_until_it_is_back_or_done_and_its_next_turn_is_another() -> None:
    shelf = shelf_of("a")
    (first,) = shelf.take(1, 0)
    assert shelf.is_out(first.token)
    shelf.put_back(first.token, 0)
    assert not shelf.is_out(first.token)
    (second,) = shelf.take(1, 0)
    assert not shelf.is_out(first.token), "its turn is over"
    assert shelf.is_out(second.token)
    assert not shelf_of("a").is_out(second.token), "another channel has the same tags"
    shelf.settle([1])
    assert not shelf.is_out(second.token)


def test_what_is_done_from_the_first_on_is_said_in_one_word() -> None:
    shelf = shelf_of(*"abcdef")
    shelf.take(6, 0)
    assert shelf.settle([3, 1, 2, 5]) == [(3, True), (5, False)]
    assert shelf.settle([6]) == [(6, False)]
    assert shelf.settle([4]) == [(4, False)]


@given(st.lists(st.lists(st.integers(1, 12), unique=True), max_size=6))
def test_the_broker_hears_exactly_what_is_done(rounds: list[list[int]]) -> None:
    """*Multiple* speaks of all before it that are not acknowledged: never of one that is still in hand."""
    shelf = shelf_of(*[None] * 12)
    unacknowledged, done = set(range(1, 13)), set[int]()
    shelf.take(12, 0)
    for each in rounds:
        new = [tag for tag in each if tag not in done]
        done |= set(new)
        for tag, multiple in shelf.settle(new):
            assert tag in unacknowledged, "RabbitMQ closes a channel that acknowledges twice"
            unacknowledged -= {other for other in unacknowledged if other <= tag} if multiple else {tag}
        assert unacknowledged == set(range(1, 13)) - done
