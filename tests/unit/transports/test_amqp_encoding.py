"""A message in AMQP carries every attribute of the CloudEvent, comes back as it was, and what is no event says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pamqp.commands import Basic

from postroom.message import Message, cloudevent
from postroom.transports.amqp.encoding import ALIKE_MAX, PERSISTENT, Encoding, read

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SOURCE = "https://shop.example"
EVERYTHING = Message(
    "order.paid",
    key="klíč 7%",
    data={"amount": 12},
    time=NOON,
    aggregate="order",
    topic="orders",
    correlation_id="c-1",
    causation_id="c-0",
    traceparent=TRACE,
    idempotency_key="pay-7",
    expires_at=NOON + timedelta(hours=1, microseconds=5),
)


def properties(**more: Any) -> Basic.Properties:
    return Basic.Properties(**more)


def test_what_a_broker_keeps_through_a_restart_has_the_protocols_number() -> None:
    """A broker takes any other as well, without a word, and forgets the message."""
    assert PERSISTENT == 2


@pytest.mark.parametrize("message", [EVERYTHING, Message("order.seen"), Message("order.seen", key="", data=None)])
def test_the_headers_are_the_attributes_of_the_cloudevent(message: Message) -> None:
    attributes = cloudevent(message, SOURCE)
    attributes.pop("datacontenttype")  # it has a property of its own
    wanted = {f"cloudEvents_{name}": value for name, value in attributes.items()}
    if message.traceparent:
        wanted["traceparent"] = message.traceparent
    assert Encoding(SOURCE).headers_of(message) == wanted


@pytest.mark.parametrize(
    "message",
    [
        EVERYTHING,
        EVERYTHING.replace(headers={"x-tenant": "acme"}),
        Message("order.seen", time=NOON),
        Message("order.seen", body=b"", time=NOON),
        Message("image.made", body=b"\x00", content_type="image/png", time=NOON),
    ],
)
def test_it_comes_back_as_it_was(message: Message) -> None:
    content_type = None if message.body is None else message.content_type
    sent = properties(headers=Encoding(SOURCE).headers_of(message), content_type=content_type)
    delivery = read(sent, message.body or b"", topic="order.paid", redelivered=False)
    assert delivery.message == message.replace(topic=None)
    assert (delivery.source, delivery.topic, delivery.redelivered, delivery.fault) == (SOURCE, "order.paid", 0, None)


def test_the_messages_own_headers_travel_with_it_and_never_override() -> None:
    forged = {
        "CloudEvents_id": "forged",
        "cloudEvents:type": "forged",
        "x-delivery-count": "forged",
        "Traceparent": "x",
    }
    headers = Encoding(SOURCE).headers_of(EVERYTHING.replace(headers={"x-tenant": "acme", **forged}))
    assert "forged" not in headers.values()
    assert (headers["x-tenant"], headers["traceparent"]) == ("acme", TRACE)
    assert "Traceparent" not in headers


def test_what_messages_have_in_common_is_not_mixed_up() -> None:
    binding = Encoding(SOURCE)
    for number in range(2 * ALIKE_MAX):
        headers = binding.headers_of(Message(f"order.{number}", key=str(number) if number % 2 else None))
        assert headers["cloudEvents_type"] == f"order.{number}"
        assert ("cloudEvents_subject" in headers) == bool(number % 2)


def test_events_of_others_are_read_with_either_separator_and_amqps_own_types() -> None:
    headers = {"cloudEvents:id": "7", "cloudEvents:type": "a.b", "cloudEvents:time": NOON, "cloudEvents:subject": 12}
    delivery = read(properties(headers=headers), b"1", topic="t", redelivered=True)
    assert delivery.fault is None
    assert (delivery.message.type, delivery.message.key, delivery.message.time) == ("a.b", "12", NOON)
    assert delivery.redelivered == 1


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (None, "no CloudEvents id and type"),
        ({"cloudEvents_id": "7"}, "no CloudEvents type"),
        ({"cloudEvents_type": "a.b", "cloudEvents_id": ""}, "no CloudEvents id"),
    ],
)
def test_what_is_no_event_says_so_and_has_its_bytes(headers: dict[str, Any] | None, said: str) -> None:
    delivery = read(properties(headers=headers, content_type="text/plain"), b"\xff\x00", topic="t", redelivered=False)
    assert said in str(delivery.fault)
    assert (delivery.message.body, delivery.message.content_type) == (b"\xff\x00", "text/plain")


def test_the_brokers_own_headers_are_no_headers_of_the_message() -> None:
    headers = Encoding(SOURCE).headers_of(EVERYTHING) | {
        "x-delivery-count": 3,
        "x-death": [{"queue": "orders"}],
        "x-first-death-queue": "orders",
        "x-tenant": "acme",
        "x-number": 7,
    }
    delivery = read(properties(headers=headers), b"1", topic="t", redelivered=True)
    assert delivery.message.headers == {"x-tenant": "acme"}
    assert delivery.redelivered == 3
