"""Every rule for a message, from both sides; and what passes them can be written."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.config.values import Limits, TableNames
from postroom.errors import InvalidMessage
from postroom.message import Message
from postroom.stores.sql.files import read, rename
from postroom.stores.sql.insert import put_statement
from postroom.validation import NAME_MAX, check

LIMITS = Limits()
NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def refusal(type: Any = "order.paid", *, limits: Any = LIMITS, **fields: Any) -> str:
    """The sentence with which this message is refused."""
    message = Message(type, **fields)
    with pytest.raises(InvalidMessage) as refused:
        check(message, limits)
    said = str(refused.value)
    assert str(message.id) in said
    assert said.endswith(".")
    assert "\n" not in said
    return said


def accept(type: Any = "order.paid", *, limits: Any = LIMITS, **fields: Any) -> None:
    check(Message(type, **fields), limits)


def test_an_ordinary_message_passes() -> None:
    accept(key="o-1", data={"amount": 12}, headers={"tenant": "Zoë"}, not_before=NOW, expires_at=NOW + timedelta(1))


@pytest.mark.parametrize(
    "type", ["", None, 5, b"order.paid", " order.paid", "order.paid\n", "a\x00b", "\ud800", "x" * 201]
)
def test_a_type_must_be_a_short_plain_text(type: Any) -> None:
    refusal(type)


def test_the_sentence_names_the_message_the_limit_and_the_remedy() -> None:
    said = refusal("x" * 201, id="018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
    assert said.startswith("Message 'xxxx")
    assert said.endswith(
        "(018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11) has a type of 201 characters; the limit is 200: shorten it."
    )


def test_the_limit_in_the_sentence_is_the_one_that_was_set() -> None:
    assert "has a key of 6 bytes; the limit is 5" in refusal(key="ééé", limits=Limits(key=5))
    accept(key="éé", limits=Limits(key=5))


def test_a_key_is_counted_in_bytes_of_utf8() -> None:
    accept(key="é" * 100)
    refusal(key="é" * 101)


@pytest.mark.parametrize("key", ["", "a\x00", "a\nb", "\x85", "\udfff"])
def test_a_key_must_be_a_plain_text(key: str) -> None:
    refusal(key=key)


@pytest.mark.parametrize("name", ["aggregate", "topic", "correlation_id", "causation_id", "idempotency_key"])
def test_the_names_are_short_plain_texts(name: str) -> None:
    accept(**{name: "é" * NAME_MAX})
    for wrong in ("", "x" * (NAME_MAX + 1), "a\rb", "a\x7fb", 7):
        assert name in refusal(**{name: wrong})


@pytest.mark.parametrize("good", ["text/plain", "application/vnd.api+json", "text/plain; charset=utf-8", "a/b;c"])
def test_a_content_type_passes(good: str) -> None:
    accept(content_type=good)


@pytest.mark.parametrize(
    "bad", ["json", "text/", "/plain", "text/pläin", "text/plain\r\nx: y", "a b/c", "a/b;\x7f", "a/b c"]
)
def test_a_content_type_of_another_form_is_refused(bad: str) -> None:
    assert "content_type" in refusal(content_type=bad)


def test_the_body_has_a_limit_in_bytes() -> None:
    accept(body=b"x" * 10, limits=Limits(body=10))
    assert "11 bytes; the limit is 10" in refusal(body=b"x" * 11, limits=Limits(body=10))


@pytest.mark.parametrize("body", ["text", bytearray(b"x"), {}])
def test_a_body_is_bytes(body: Any) -> None:
    assert type(body).__name__ in refusal(body=body)


@pytest.mark.parametrize("headers", [{"a": 1}, {"a": None}, {"a": b"x"}, {5: "x"}, [("a", "b")], None, "a=b"])
def test_headers_are_texts_by_name(headers: Any) -> None:
    refusal(headers=headers)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "é", "a\n", "ce-id", "CE-type", "ce_source", "x" * 129])
def test_a_header_name_is_a_short_token_that_is_not_cloudevents(name: str) -> None:
    refusal(headers={name: "x"})


def test_a_header_may_be_as_long_as_the_limits_say() -> None:
    accept(headers={"x" * LIMITS.header_name: "é" * (LIMITS.header_value // 2)})
    assert "129 bytes" in refusal(headers={"x" * (LIMITS.header_name + 1): ""})
    assert f"{LIMITS.header_value + 1:,} bytes" in refusal(headers={"x": "x" * (LIMITS.header_value + 1)})


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "\x00", "\t", "\x9f", "\ud800"])
def test_a_header_value_has_no_control_characters(value: str) -> None:
    said = refusal(headers={"tenant": value})
    assert "control character in header 'tenant'" in said


def test_headers_that_differ_only_by_case_are_one() -> None:
    assert "'Tenant' and 'TENANT'" in refusal(headers={"Tenant": "a", "TENANT": "b"})


def test_headers_are_counted_and_weighed() -> None:
    few = Limits(headers=2, headers_total=10, header_value=8)
    accept(headers={"a": "1234", "b": "1234"}, limits=few)
    assert "3 headers; the limit is 2" in refusal(headers=dict.fromkeys("abc", ""), limits=few)
    assert "11 bytes of headers; the limit is 10" in refusal(headers={"a": "1234", "b": "éé5"}, limits=few)
    assert "9 bytes in header 'a'; the limit is 8" in refusal(headers={"a": "x" * 9}, limits=few)


@pytest.mark.parametrize("name", ["time", "not_before", "expires_at"])
def test_a_time_knows_its_zone(name: str) -> None:
    accept(**{name: NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))})
    assert "like datetime.now(UTC)" in refusal(**{name: NOW.replace(tzinfo=None)})
    assert "of type str" in refusal(**{name: "2026-11-15"})


EAST, WEST = timezone(timedelta(hours=1)), timezone(timedelta(hours=-1))


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=EAST), datetime(9999, 12, 31, 23, 30, tzinfo=WEST)])
def test_a_time_that_utc_cannot_express_is_refused(moment: datetime) -> None:
    assert "no year from 1 to 9999" in refusal(time=moment)


@pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=1)])
def test_a_message_must_not_expire_before_it_may_go(late: timedelta) -> None:
    assert "not after its not_before" in refusal(expires_at=NOW, not_before=NOW + late)


def test_a_traceparent_of_w3c_passes() -> None:
    accept(traceparent=f"00-{TRACE}-{SPAN}-01")


@pytest.mark.parametrize(
    "wrong",
    [
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-x",
        f"00-{TRACE}-{SPAN}-01\n",
        "",
    ],
)
def test_another_traceparent_is_refused(wrong: str) -> None:
    assert "traceparent" in refusal(traceparent=wrong)


def test_a_refused_text_is_repeated_only_in_part() -> None:
    assert len(refusal(content_type="x" * 200)) < 300


texts = st.text(max_size=300)
maybe = st.none() | texts
messages = st.builds(
    Message,
    texts,
    key=maybe,
    body=st.none() | st.binary(max_size=300),
    content_type=st.sampled_from(["application/json", "text/plain; charset=utf-8"]) | texts,
    aggregate=maybe,
    topic=maybe,
    correlation_id=maybe,
    idempotency_key=maybe,
    headers=st.dictionaries(texts | st.sampled_from(["tenant", "Tenant"]), texts, max_size=4),
    time=st.datetimes(timezones=st.none() | st.timezones()),
    expires_at=st.none() | st.datetimes(timezones=st.none() | st.timezones()),
)


@given(messages)
def test_a_message_is_refused_by_a_sentence_or_can_be_written(message: Message) -> None:
    try:
        check(message, LIMITS)
    except InvalidMessage as refused:
        str(refused).encode()
        return
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(rename(read("postroom.stores.sqlite", "schema.sql"), TableNames()))
        statement = put_statement("sqlite", "qmark", TableNames(), [message])
        connection.executemany(statement.sql, statement.rows)
    ((text,),) = put_statement("postgres", "format", TableNames(), [message, message]).rows
    assert "\\u0000" not in text
    assert json.loads(text)[0]["type"] == message.type


plain = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=50)


@given(type=plain.map(str.strip).filter(bool), key=plain, name=plain, value=plain)
def test_any_plain_text_is_welcome(type: str, key: str, name: str, value: str) -> None:
    accept(type, key=key, aggregate=name, correlation_id=name, headers={"tenant": value})
