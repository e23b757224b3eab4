"""A record is read as the message it was written from; what is none says why, and has always the same id."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.unit.transports.test_kafka_encoding import EVERYTHING, SOURCE

from postroom.message import Message
from postroom.transports.kafka.decoding import Read, read
from postroom.transports.kafka.encoding import Encoding

ID = "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11"
EVENT = [("ce_id", ID.encode()), ("ce_type", b"order.paid"), ("ce_source", b"shop")]


class Record:
    """What librdkafka hands out, as far as it is looked at."""

    def __init__(self, headers: Any = None, *, key: Any = None, value: bytes | None = b"1", offset: int = 7) -> None:
        self._headers, self._key, self._value, self._offset = headers, key, value, offset

    def headers(self) -> Any:
        return self._headers

    def key(self) -> Any:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return self._offset


def reading(*arguments: Any, **fields: Any) -> Read:
    record: Any = Record(*arguments, **fields)
    return read(record)


def written(message: Message) -> Read:
    headers = [(name, str(value).encode()) for name, value in Encoding(SOURCE).headers_of(message)]
    return reading(headers, key=None if message.key is None else message.key.encode(), value=message.body)


@pytest.mark.parametrize(
    "message",
    [
        EVERYTHING,
        EVERYTHING.replace(headers={"x-tenant": "acme", "X-Case": "kept"}),
        Message("order.seen"),
        Message("order.seen", key="", data=None),
        Message("image.made", body=b"\x00\xff", content_type="image/png"),
    ],
    ids=lambda message: message.type,
)
def test_what_was_written_is_read_again(message: Message) -> None:
    found = written(message)
    assert found.message == message.replace(topic=None)
    assert (found.source, found.fault) == (SOURCE, None)


def test_the_key_of_the_record_is_the_key_and_a_binary_one_stays_different_from_others() -> None:
    assert reading([*EVENT, ("ce_subject", b"invoice-1")], key=b"order-7").message.key == "order-7"
    assert reading([*EVENT, ("ce_subject", b"invoice-1")]).message.key == "invoice-1"
    assert reading(EVENT, key=b"\x00\xfe").message.key != reading(EVENT, key=b"\x00\xff").message.key


def test_an_event_that_is_all_in_the_value_is_read_as_well() -> None:
    event = b'{"specversion":"1.0","id":"7","source":"shop","type":"order.paid","data":{"amount":12}}'
    found = reading([("content-type", b"application/cloudevents+json; charset=UTF-8")], value=event, key=b"order-7")
    assert found.fault is None
    assert (found.message.type, found.message.key, found.message.data) == ("order.paid", "order-7", {"amount": 12})
    assert found.message.content_type == "application/json"


@pytest.mark.parametrize(
    ("headers", "value", "why"),
    [
        (None, b"hello", "no CloudEvents id and type"),
        ([("ce_id", b"7")], b"hello", "no CloudEvents type"),
        ([("ce_id", b"\xff"), ("ce_type", b"x")], b"hello", "not UTF-8"),
        ([("ce_id", None), ("ce_type", b"x")], None, "no CloudEvents id"),
        ([("content-type", b"application/cloudevents+json")], b"[]", "not a JSON object"),
        ([("ce_id", 5)], b"hello", "It cannot be read"),
    ],
    ids=["bare", "no type", "broken", "null", "structured", "stranger than that"],
)
def test_what_is_no_event_says_why_and_keeps_its_bytes_and_its_id(headers: Any, value: Any, why: str) -> None:
    found = reading(headers, value=value, key=b"order-7")
    assert why in str(found.fault)
    assert found.message.body == (value or b"")
    assert found.message.key == "order-7"
    assert found.message.id == reading(headers, value=value).message.id
    assert found.message.id != reading(headers, value=value, offset=8).message.id


def test_foreign_headers_cannot_break_an_event() -> None:
    found = reading([*EVENT, ("x-binary", b"\xff"), ("x-null", None), ("x-twice", b"1"), ("x-twice", b"2")])
    assert found.fault is None
    assert found.message.id == UUID(ID)
    assert dict(found.message.headers) == {"x-binary": "\\xff", "x-null": "", "x-twice": "2"}
