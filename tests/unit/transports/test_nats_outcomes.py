"""What a stream's answers mean: decisions, without a server."""

from __future__ import annotations

import json

import pytest

from postroom.contracts.transport import Failed, Outcome, Rejected, Sent, Unavailable
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
