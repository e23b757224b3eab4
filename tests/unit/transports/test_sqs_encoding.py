"""A message becomes text that SQS takes, and that text the same message, byte for byte."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.message import Message, cloudevent
from postroom.transports.sqs.decoding import _at_once, _members, event_in
from postroom.transports.sqs.encoding import body_of, group_of

TAKEN = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
WHOLE = Message(
    "order.paid",
    key="ключ 7%\x01\ufffe",
    data={"amount": 12},
    aggregate="order",
    headers={"X-Tenant": "acme\x01", "empty": ""},
    correlation_id="c-1",
    causation_id="c-0",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    idempotency_key="once",
    expires_at=datetime(2030, 1, 1, tzinfo=UTC),
)


def there_and_back(message: Message) -> Message:
    text = body_of(message, "https://shop.example")
    assert TAKEN.fullmatch(text)
    again, source, fault = event_in(text, {})
    assert (source, fault) == ("https://shop.example", None)
    return again


def test_every_field_arrives() -> None:
    assert there_and_back(WHOLE) == WHOLE


def test_the_text_is_a_cloudevent_with_the_data_as_json() -> None:
    event = json.loads(body_of(WHOLE, "shop"))
    headers = json.loads(event.pop("postroomheaders"))
    assert event.pop("data") == {"amount": 12}
    assert event == cloudevent(WHOLE, "shop")
    assert headers == WHOLE.headers


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1.0,"b":1e400,"a":2}',  # twice a name, and a number that no float can hold: passed on as they are
        b'{ "spaces" : [ 1 , 2 ] }',
        '"ж\U0001f600"'.encode(),
        b"null",
        b"0",
        b'"data_base64"',
    ],
)
def test_json_stands_there_as_it_was_written(body: bytes) -> None:
    message = Message("order.paid", body=body)
    assert f'"data":{body.decode()}' in body_of(message, "shop")
    assert there_and_back(message).body == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\xff",
        b"{",
        b"NaN",
        b' {"a":1}',
        b'{"a":1}\n',
        b"\xef\xbb\xbf{}",
        '"\ufffe"'.encode(),
        b"[" * 100_000 + b"]" * 100_000,
        b'1,"type":"forged"',
    ],
)
def test_what_is_no_json_or_sqs_refuses_goes_as_base64(body: bytes) -> None:
    message = Message("order.paid", body=body)
    event = json.loads(body_of(message, "shop"))
    assert "data" not in event
    assert there_and_back(message).body == body
    assert there_and_back(message).type == "order.paid"


def test_no_body_is_no_body_and_an_empty_one_is_empty() -> None:
    assert there_and_back(Message("order.paid")).body is None
    assert there_and_back(Message("order.paid", body=b"")).body == b""


@given(
    body=st.binary(max_size=60) | st.text(max_size=30).map(lambda text: json.dumps(text).encode()),
    key=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),  # put takes no other
)
def test_any_bytes_and_any_key_arrive_as_they_were(body: bytes, key: str) -> None:
    message = Message("order.paid", key=key or None, body=body)
    again = there_and_back(message)
    assert (again.body, again.key) == (body, key or None)


def test_others_may_write_it_in_their_own_way() -> None:
    text = (
        """ {"data" : "hällo" , "datacontenttype":"text/plain", "type":"a", "id":"1", "source":"/them", "number": 7} """
    )
    message, source, fault = event_in(text, {"tenant": {"DataType": "String", "StringValue": "acme"}})
    assert (message.body, message.content_type, source, fault) == ("hällo".encode(), "text/plain", "/them", None)
    assert message.headers == {"tenant": "acme"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "id", ',"data":', "x"]), inner)
    ),
    max_leaves=6,
)


@given(event=st.dictionaries(st.sampled_from(["data", "id", "type", 'a,"data":', "x"]), JSON), spaced=st.booleans())
def test_the_fast_way_to_read_an_event_and_the_careful_one_agree(event: dict[str, Any], spaced: bool) -> None:
    text = json.dumps(event, separators=None if spaced else (",", ":"), ensure_ascii=False)
    slowly = _members(text)
    assert {name: value for name, (_, value) in slowly.items()} == event
    quickly = _at_once(text)
    if quickly is not None:
        assert quickly["data"] == slowly["data"]
        assert {name: value for name, (_, value) in quickly.items()} == event


def test_what_postroom_wrote_is_read_the_fast_way() -> None:
    assert _at_once(body_of(WHOLE, "shop")) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "not a CloudEvent"),
        ('{"id":"1","type":"a","id":"2","data":1}', "occurs twice in it"),
        ('{"data":1,"id":"1","type":"a","data":1}', "occurs twice in it"),
        ("{", "not a CloudEvent"),
        ("{}", "no CloudEvents id and type"),
        ("[1]", "not a CloudEvent"),
        ('{"id":"1","type":"a"} {}', "something follows it"),
        ('{"id":"1","type":"a","type":"b"}', "occurs twice in it"),
        ('{"id":"1","type":"a",}', "is missing at character"),
        ('{"id":"1","type":"a","data_base64":"*"}', "not a CloudEvent"),
        ('{"id":"1","type":"a","data_base64":7}', "is not a text"),
        ('{"id":"1","type":"a","postroomheaders":"{"}', "not a CloudEvent"),
        ('{"a":' + "[" * 100_000, "not a CloudEvent"),
    ],
)
def test_what_is_no_event_says_why_and_keeps_its_bytes(text: str, said: str) -> None:
    message, _, fault = event_in(text, {})
    assert fault is not None
    assert said in fault
    assert message.body == text.encode()


def test_a_key_is_its_group_and_one_that_cannot_be_stands_there_as_its_hash() -> None:
    assert group_of(Message("a", key="order-7")) == "order-7"
    assert group_of(Message("a", key="x" * 128)) == "x" * 128
    hashed = [group_of(Message("a", key=key)) for key in ("x" * 129, "order 7", "ключ", "", "a\n", "\ud800")]
    assert all(re.fullmatch("sha256-[0-9a-f]{64}", group) for group in hashed)
    assert len(set(hashed)) == len(hashed)
    assert group_of(Message("a", key="ключ")) == group_of(Message("b", key="ключ"))


def test_messages_without_a_key_are_groups_of_their_own() -> None:
    first, second = Message("a"), Message("a")
    assert group_of(first) == str(first.id)
    assert group_of(first) != group_of(second)
