"""A message carries every attribute of the CloudEvent there and back, and its headers never pass for one or for an order."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest

from postroom.message import Message, cloudevent
from postroom.transports.nats.encoding import Encoding, message_of, size_of

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SOURCE = "https://shop.example"
EVERYTHING = Message(
    "order.paid",
    key='klíč 7% "x"',
    data={"amount": 12},
    time=NOON,
    aggregate="order",
    correlation_id="c 1",
    causation_id="c-0",
    traceparent=TRACE,
    idempotency_key="pay-7",
    expires_at=NOON + timedelta(hours=1, microseconds=5),
)
BINDING = Encoding(SOURCE, "ORDERS")


@pytest.mark.parametrize(
    "message",
    [EVERYTHING, Message("order.seen"), Message("image.made", body=b"\x00", content_type="image/png")],
    ids=lambda message: message.type,
)
def test_the_headers_are_the_attributes_of_the_cloudevent_and_come_back_as_the_message(message: Message) -> None:
    headers = BINDING.headers_of(message, "orders.paid")
    found = {name[3:]: unquote(value) for name, value in headers.items() if name.startswith("ce-")}
    assert found == cloudevent(message, SOURCE)
    assert all(value.isascii() and " " not in value and '"' not in value for value in headers.values())
    assert "content-type" not in {name.lower() for name in headers}, "here the event itself says what the data is"
    back, source, fault = message_of(headers, message.body or b"")
    assert (back, source, fault) == (message, SOURCE, None)


def test_an_id_is_of_one_subject() -> None:
    one, other = (BINDING.headers_of(EVERYTHING, subject) for subject in ("orders.paid", "orders.booked"))
    assert one["Nats-Msg-Id"] != other["Nats-Msg-Id"]
    assert one["Nats-Msg-Id"] == BINDING.headers_of(EVERYTHING, "orders.paid")["Nats-Msg-Id"]
    assert one["Nats-Expected-Stream"] == "ORDERS"


def test_the_messages_own_headers_travel_with_it_and_never_override() -> None:
    own = {"x-tenant": "acme", "CE-id": "forged", "nats-rollup": "forged", "Content-Type": "forged", "Traceparent": "x"}
    headers = BINDING.headers_of(EVERYTHING.replace(headers=own), "orders.paid")
    assert "forged" not in headers.values()
    assert headers["traceparent"] == TRACE
    back, _, _ = message_of(headers, b"")
    assert back.headers == {"x-tenant": "acme"}


@pytest.mark.parametrize("own", [{"a b": "x"}, {"é": "x"}, {"a": "x\ny"}, {"a": "\x00"}, {"a": "\ud800"}, {"": "x"}])
def test_a_header_that_cannot_be_written_is_an_error(own: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        BINDING.headers_of(EVERYTHING.replace(headers=own), "orders.paid")


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        (None, b"\x00\x01"),
        ({}, b"{}"),
        ({"ce-id": "1"}, b"x"),
        ({"ce-type": "order.paid"}, b"x"),
        ({"ce-id": "1", "ce-type": "t", "ce-subject": "%FF"}, b"x"),
        ({"Content-Type": "application/cloudevents+json"}, b"{"),
        ({"Content-Type": "application/cloudevents+json"}, b"[]"),
        ({"Content-Type": "application/cloudevents+json"}, b'{"id": "1", "type": "t", "data_base64": "!"}'),
    ],
)
def test_what_is_no_event_says_so_and_keeps_its_bytes(headers: dict[str, str] | None, data: bytes) -> None:
    message, _, fault = message_of(headers, data)
    assert fault
    assert message.body == data


def test_an_event_in_structured_mode_is_read() -> None:
    event = {"specversion": "1.0", "id": "7", "source": "shop", "type": "order.paid", "subject": "a", "data": {"n": 1}}
    message, source, fault = message_of({"content-type": "application/cloudevents+json"}, json.dumps(event).encode())
    assert (message.type, message.key, message.data, source, fault) == ("order.paid", "a", {"n": 1}, "shop", None)
    binary = {**event, "data_base64": "AAE=", "datacontenttype": "image/png"}
    del binary["data"]
    message, _, _ = message_of({"content-type": "application/cloudevents+json"}, json.dumps(binary).encode())
    assert (message.body, message.content_type) == (b"\x00\x01", "image/png")


def test_the_size_is_what_goes_over_the_wire() -> None:
    headers = {"a": "é", "bc": "x"}
    written = "NATS/1.0\r\na: é\r\nbc: x\r\n\r\n".encode() + b"body"
    assert size_of(headers, b"body") == len(written)
