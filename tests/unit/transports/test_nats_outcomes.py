"""What a stream's answers mean, and what is given of a hand: decisions, without a server."""

from __future__ import annotations

import json

import pytest

from postroom.contracts.transport import Delivery, Failed, Outcome, Rejected, Sent, Unavailable
from postroom.message import Message
from postroom.transports.nats.inflight import InFlight, InFlightMessage
from postroom.transports.nats.outcomes import NO_RESPONDERS, outcome_of, unanswered_for


def said(**answer: object) -> Outcome | None:
    return outcome_of(json.dumps(answer).encode(), None, "ORDERS")


def error(number: int, description: str = "", code: int = 400) -> Outcome | None:
    return said(error={"code": code, "err_code": number, "description": description})


def test_only_the_streams_own_confirmation_is_sent() -> None:
    assert said(stream="ORDERS", seq=7) == Sent(7)
    assert said(stream="ORDERS", seq=7, duplicate=True) == Sent(7)
    for lie in ({}, {"stream": "OTHER", "seq": 7}, {"stream": "ORDERS"}, {"stream": "ORDERS", "seq": 0}):
        assert said(**lie) is None
    assert said(stream="ORDERS", seq=True) is None
    for noise in (b"", b"+OK", b"[]", b"7", b"\xff"):
        assert outcome_of(noise, None, "ORDERS") is None


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (error(10054), Rejected, "PAYLOAD_TOO_LARGE"),
        (error(10060), Rejected, "UNROUTABLE"),
        (error(10077, "message to large", 503), Rejected, "PAYLOAD_TOO_LARGE"),
        (error(10077, "maximum bytes exceeded", 503), Unavailable, "STREAM_FULL"),
        (error(10077, "maximum messages exceeded", 503), Unavailable, "STREAM_FULL"),
        (error(10077, "maximum messages per subject exceeded", 503), Unavailable, "STREAM_FULL"),
        (error(10077, "no space left on device", 503), Unavailable, "NOT_STORED"),
        (error(10109, "invalid operation on sealed stream"), Unavailable, "STREAM_SEALED"),
        (error(10002, "resource limits exceeded for account"), Unavailable, "STREAM_FULL"),
        (error(10023, "insufficient resources", 503), Unavailable, "STREAM_FULL"),
        (error(10167, "too many requests", 429), Unavailable, "NATS_10167"),
        (error(10025, "malformed"), Failed, "NATS_10025"),
        (said(error={"code": 500}), Unavailable, "NATS_500"),
        (said(error={"code": "odd"}), Failed, "NATS_odd"),
    ],
)
def test_a_refusal_is_the_messages_fault_or_the_servers_or_nobody_knows_whose(
    answer: Outcome, kind: type[Outcome], code: str
) -> None:
    assert isinstance(answer, kind)
    assert (getattr(answer, "code", None), getattr(answer, "unknown", False)) == (code, False)


def test_nobody_answering_is_judged_by_what_the_stream_takes() -> None:
    assert outcome_of(b"", {"Status": "503"}, "ORDERS") is NO_RESPONDERS

    def judge(patterns: list[str] | None, *, of_the_url: bool = False) -> Outcome:
        return unanswered_for("orders.paid", of_the_url=of_the_url, stream="ORDERS", patterns=patterns)

    assert isinstance(judge(None), Unavailable)
    assert isinstance(judge(["other.>"]), Rejected)
    assert isinstance(judge(["other.>"], of_the_url=True), Unavailable)
    assert judge(["orders.*"]) is NO_RESPONDERS


def hold(place: int, key: str | None = "a") -> InFlightMessage:
    made = InFlightMessage(place, f"reply-{place}")
    made.delivery = Delivery(Message("t", key=key), "s", "t", token=made)
    return made


def places(holds: list[InFlightMessage]) -> list[int]:
    return [each.place for each in holds]


def test_what_came_out_of_order_is_given_in_order() -> None:
    hand = InFlight(10)
    for place in (4, 2, 3):
        hand.arrive(hold(place))
    assert places(hand.take(2)) == [2, 3]
    assert places(hand.take(2)) == [4]


def test_no_more_is_given_than_the_prefetch() -> None:
    hand = InFlight(2)
    for place in range(5):
        hand.arrive(hold(place, None))
    first = hand.take(9)
    assert places(first) == [0, 1]
    assert hand.take(9) == []
    assert hand.settle(first[0])
    assert not hand.settle(first[0])
    assert places(hand.take(9)) == [2]


def test_what_is_behind_a_refused_one_of_its_key_waits_for_it() -> None:
    hand = InFlight(10)
    for place, key in ((1, "a"), (2, "a"), (3, "b"), (4, None)):
        hand.arrive(hold(place, key))
    (first,) = hand.take(1)
    assert hand.refuse(first, due=5.0)
    assert not hand.refuse(first, due=5.0)
    assert places(hand.take(9)) == [3, 4]
    assert (hand.is_overdue(4.0), hand.is_overdue(6.0)) == (False, True)
    hand.arrive(hold(1))
    assert places(hand.take(9)) == [1, 2]


def test_two_refused_ones_come_back_in_order_whichever_is_sooner() -> None:
    hand = InFlight(10)
    for place in (1, 2):
        hand.arrive(hold(place))
    for each in hand.take(2):
        hand.refuse(each, due=0.0)
    hand.arrive(hold(2))
    assert hand.take(9) == []
    hand.arrive(hold(1))
    assert places(hand.take(9)) == [1, 2]


def test_what_comes_again_while_it_is_handled_is_not_given_twice_and_is_answered_at_the_newer_place() -> None:
    hand = InFlight(10)
    hand.arrive(hold(1))
    (given,) = hand.take(1)
    again = hold(1)
    again.reply = "newer"
    hand.arrive(again)
    assert hand.take(9) == []
    assert (given.reply, hand.mine) == ("newer", 1)


def test_what_nobody_was_given_can_be_given_back() -> None:
    hand = InFlight(10)
    for place in (3, 1, 2):
        hand.arrive(hold(place))
    (first,) = hand.take(1)
    assert places(hand.give_back()) == [2, 3]
    assert places(hand.holds) == [1]
    assert hand.settle(first)
