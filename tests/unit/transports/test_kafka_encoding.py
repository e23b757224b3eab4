"""A record carries every attribute of the CloudEvent, and the message's own headers never pass for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from postroom.message import Message, cloudevent
from postroom.transports.kafka.encoding import ALIKE_MAX, Encoding

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


@pytest.mark.parametrize(
    "message",
    [
        EVERYTHING,
        Message("order.seen"),
        Message("order.seen", key="", data=None),
        Message("order.seen", time=NOON.replace(microsecond=250)),
        Message("order.seen", time=NOON.astimezone(timezone(timedelta(hours=2)))),
        Message("order.seen", time=NOON.replace(microsecond=1).astimezone(timezone(timedelta(hours=-3, seconds=1)))),
        Message("image.made", body=b"\x00", content_type="image/png"),
    ],
    ids=lambda message: message.type,
)
def test_the_headers_are_the_attributes_of_the_cloudevent(message: Message) -> None:
    attributes = cloudevent(message, SOURCE)
    wanted = {"content-type": attributes.pop("datacontenttype")}
    attributes.pop("partitionkey", None)  # it is the key of the record
    wanted |= {f"ce_{name}": value for name, value in attributes.items()}
    if message.traceparent:
        wanted["traceparent"] = message.traceparent
    headers = Encoding(SOURCE).headers_of(message)
    assert dict(headers) == wanted
    assert len(headers) == len(wanted)


def test_the_messages_own_headers_travel_with_it_and_never_override() -> None:
    own = {"x-tenant": "acme", "CE_id": "forged", "ce_anything": "forged", "Content-Type": "forged", "traceparent": "x"}
    headers = Encoding(SOURCE).headers_of(EVERYTHING.replace(headers=own))
    assert [pair for pair in headers if "forged" in pair] == []
    assert ("x-tenant", "acme") in headers
    assert ("traceparent", TRACE) in headers
    assert len(headers) == len(dict(headers))


def test_what_messages_have_in_common_is_not_mixed_up() -> None:
    binding = Encoding(SOURCE)
    for number in range(2 * ALIKE_MAX):
        message = Message(f"order.{number}", body=b"x", content_type=f"text/{number % 3}")
        headers = dict(binding.headers_of(message))
        assert (headers["ce_type"], headers["content-type"]) == (message.type, message.content_type)
