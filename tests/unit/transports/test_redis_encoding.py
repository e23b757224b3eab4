"""An entry carries every attribute of the CloudEvent and comes back as the message; what is no event says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postroom.message import Message, cloudevent
from postroom.transports.redis_streams.encoding import ALIKE_MAX, Encoding, Words, read

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SOURCE = "https://shop.example"
EVERYTHING = Message(
    "order.paid",
    key="klíč 7%",
    data={"amount": 12},
    time=NOON,
    aggregate="order",
    correlation_id="c-1",
    causation_id="c-0",
    traceparent=TRACE,
    idempotency_key="pay-7",
    expires_at=NOON + timedelta(hours=1, microseconds=5),
    headers={"x-tenant": "acme", "data": "mine", "content-type": "mine"},
)
MESSAGES = [
    EVERYTHING,
    Message("order.seen"),
    Message("order.seen", key="", data=None),
    Message("order.seen", time=NOON.replace(microsecond=250)),
    Message("image.made", body=bytes(range(256)), content_type="image/png"),
]


def fields_of(message: Message) -> dict[str | bytes, str | bytes]:
    words = Encoding(SOURCE).words_of(message)
    fields = dict(zip(words[::2], words[1::2], strict=True))
    assert 2 * len(fields) == len(words), "no field may be there twice"
    return fields


def as_read(words: Words) -> list[bytes]:
    return [word.encode() if isinstance(word, str) else word for word in words]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_the_fields_are_the_attributes_of_the_cloudevent(message: Message) -> None:
    attributes = cloudevent(message, SOURCE)
    wanted: dict[str | bytes, str | bytes] = {"content-type": attributes.pop("datacontenttype")}
    wanted |= {f"ce_{name}": value for name, value in attributes.items()}
    wanted |= {f"header:{name}": value for name, value in message.headers.items()}
    if message.body is not None:
        wanted["data"] = message.body
    assert fields_of(message) == wanted


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_what_was_written_is_read_back(message: Message) -> None:
    arrived, source, fault = read(as_read(Encoding(SOURCE).words_of(message)))
    assert (source, fault) == (SOURCE, None)
    assert arrived == message


def test_what_messages_have_in_common_is_not_mixed_up() -> None:
    binding = Encoding(SOURCE)
    for number in range(2 * ALIKE_MAX):
        message = Message(f"order.{number}", body=b"x", content_type=f"text/{number % 3}")
        arrived, _, _ = read(as_read(binding.words_of(message)))
        assert (arrived.type, arrived.content_type) == (message.type, message.content_type)


@pytest.mark.parametrize(
    ("words", "why", "body"),
    [
        ([b"hello", b"world", b"n", b"1"], "no CloudEvents id and type", b"hello=world\nn=1"),
        ([b"ce_id", b"7", b"data", b"\xff"], "no CloudEvents type", b"\xff"),
        ([b"ce_id", b"7", b"ce_type", b"\xff", b"data", b"x"], "not UTF-8", b"x"),
        ([b"\xff", b"7"], "not UTF-8", b"\xff=7"),
    ],
)
def test_what_is_no_event_says_why_and_keeps_its_bytes(words: list[bytes], why: str, body: bytes) -> None:
    message, _, fault = read(words)
    assert fault is not None
    assert why in fault
    assert message.body == body
