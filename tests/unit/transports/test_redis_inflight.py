"""What a receiver has is given out in the stream's order, each entry once, and nothing past a refused one of its key."""

from __future__ import annotations

from postroom.message import Message
from postroom.transports.redis_streams.encoding import Encoding
from postroom.transports.redis_streams.inflight import Entry, InFlight, entry_of


def entry(id_: str, key: str | None = "a") -> Entry:
    words = Encoding("postroom").words_of(Message("order.paid", key=key))
    return entry_of(id_.encode(), [word.encode() if isinstance(word, str) else word for word in words])


def given(hand: InFlight, limit: int = 10, now: float = 0.0) -> list[str]:
    entries = hand.ready(limit, now)
    hand.give(entries)
    return [each.id.decode() for each in entries]


def test_the_order_is_the_streams_whatever_came_first() -> None:
    hand = InFlight()
    hand.put([entry("10-0"), entry("10-2")])
    hand.put([entry("9-7"), entry("10-10"), entry("10-1")])
    assert given(hand, 2) == ["9-7", "10-0"]
    assert given(hand) == ["10-1", "10-2", "10-10"]


def test_what_is_here_already_is_not_given_out_twice() -> None:
    hand = InFlight()
    hand.put([entry("1-0"), entry("2-0")])
    assert given(hand, 1) == ["1-0"]
    hand.put([entry("1-0"), entry("2-0")])
    assert given(hand) == ["2-0"]
    assert hand.waiting == 0


def test_behind_a_refused_one_its_key_waits_and_no_other() -> None:
    hand = InFlight()
    hand.put([entry("1-0"), entry("2-0"), entry("3-0", "b"), entry("4-0", None)])
    assert given(hand, 1) == ["1-0"]
    hand.refuse(hand.held[b"1-0"], due=5.0)
    assert (hand.next_due(now=0.0), hand.next_due(now=5.0)) == (5.0, float("inf"))
    assert given(hand, now=4.9) == ["3-0", "4-0"]
    assert given(hand, now=5.0) == ["1-0", "2-0"]


def test_refused_ones_without_a_key_hold_up_nobody() -> None:
    hand = InFlight()
    hand.put([entry("1-0", None), entry("2-0", None)])
    assert given(hand, 1) == ["1-0"]
    hand.refuse(hand.held[b"1-0"], due=5.0)
    assert given(hand) == ["2-0"]


def test_what_is_refused_twice_or_after_it_was_lost_is_refused_once() -> None:
    hand = InFlight()
    hand.put([entry("1-0")])
    assert given(hand) == ["1-0"]
    held = hand.held[b"1-0"]
    hand.refuse(held, due=0.0)
    hand.refuse(held, due=0.0)
    assert hand.waiting == 1
    hand.drop([b"1-0"])
    assert hand.ids == set()
    hand.refuse(held, due=0.0)
    assert hand.ids == set()
