"""Entries of a stream are given out in the stream's order, each once, and nothing past a refused one of its key."""

from __future__ import annotations

from postroom.contracts.transport import Delivery
from postroom.message import Message
from postroom.transports.inflight import NEVER, InFlight
from postroom.transports.redis_streams.encoding import Encoding
from postroom.transports.redis_streams.receiver import delivery_of


def entry(id_: str, key: str | None = "a", deliveries: int = 1) -> Delivery:
    words = Encoding("postroom").words_of(Message("order.paid", key=key))
    in_bytes = [word.encode() if isinstance(word, str) else word for word in words]
    return delivery_of("orders", id_.encode(), in_bytes, deliveries)


def with_entries(*entries: Delivery) -> InFlight[bytes]:
    made = InFlight[bytes]()
    for each in entries:
        made.arrive(each)
    return made


def given(ours: InFlight[bytes], limit: int = 10, now: float = 0.0) -> list[str]:
    return [each.token.receipt.decode() for each in ours.give(limit, now)]


def test_the_order_is_the_streams_whatever_came_first() -> None:
    ours = with_entries(*map(entry, ("10-0", "10-2", "9-7", "10-10", "10-1")))
    assert given(ours, 2) == ["9-7", "10-0"]
    assert given(ours) == ["10-1", "10-2", "10-10"]


def test_what_is_here_already_is_not_given_out_twice() -> None:
    ours = with_entries(entry("1-0"), entry("2-0"))
    assert given(ours, 1) == ["1-0"]
    for id_ in ("1-0", "2-0"):
        ours.arrive(entry(id_))
    assert given(ours) == ["2-0"]
    assert ours.waiting == 0


def test_behind_a_refused_one_its_key_waits_and_no_other() -> None:
    ours = with_entries(entry("1-0"), entry("2-0"), entry("3-0", "b"), entry("4-0", None))
    (first,) = ours.give(1, 0)
    ours.refuse(first, due=5.0)
    assert (ours.next_due(now=0.0), ours.next_due(now=5.0)) == (5.0, NEVER)
    assert given(ours, now=4.9) == ["3-0", "4-0"]
    assert given(ours, now=5.0) == ["1-0", "2-0"]


def test_what_is_refused_twice_or_after_it_was_lost_is_refused_once() -> None:
    ours = with_entries(entry("1-0"))
    (first,) = ours.give(1, 0)
    assert ours.refuse(first, due=0.0)
    assert not ours.refuse(first, due=0.0)
    assert ours.waiting == 1
    ours.lost(list(ours))
    assert len(ours) == 0
    assert not ours.refuse(first, due=0.0)
    assert len(ours) == 0


def test_an_entry_says_how_often_it_was_delivered_before() -> None:
    assert [entry("1-0").redelivered, entry("1-0", deliveries=3).redelivered] == [0, 2]
    assert (entry("1-0").topic, entry("1-0").source, entry("1-0").fault) == ("orders", "postroom", None)
