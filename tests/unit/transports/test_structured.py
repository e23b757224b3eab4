"""An event that is all in its body: what JSON says, and what is refused."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidMessage
from postroom.transports.cloudevents import is_json, is_structured, read

HEAD = '"specversion":"1.0","id":"7","source":"shop","type":"order.paid"'


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        ("", None),
        (',"data":null', b"null"),
        (',"data":{"a": [1, 2]}', b'{"a":[1,2]}'),
        (',"data":"text"', b'"text"'),
        (',"data":"text","datacontenttype":"text/plain"', b"text"),
        (',"data":"text","datacontenttype":"application/vnd.shop+json"', b'"text"'),
        (',"data":{"a":1},"datacontenttype":"text/plain"', b'{"a":1}'),
        (',"data_base64":"AP8="', b"\x00\xff"),
    ],
)
def test_the_data_becomes_the_body(rest: str, body: bytes | None) -> None:
    found = read(f"{{{HEAD}{rest}}}".encode())
    assert found.body == body
    assert found.attributes["id"] == "7"


def test_attributes_are_texts_and_null_is_none() -> None:
    found = read(f'{{{HEAD},"sequence":7,"sampled":true,"subject":null}}'.encode())
    assert (found.attributes["sequence"], found.attributes["sampled"]) == ("7", "true")
    assert "subject" not in found.attributes


@pytest.mark.parametrize(
    "event", ["[]", "", '"x"', f'{{{HEAD},"id":"8"}}', f'{{{HEAD},"x":{{}}}}', '{"data_base64":1}']
)
def test_what_is_no_event_is_refused(event: str) -> None:
    with pytest.raises(InvalidMessage):
        read(event.encode())


def test_a_batch_is_structured_but_not_read() -> None:
    assert is_structured("application/cloudevents-batch+json")
    assert not is_json("application/cloudevents-batch+json")
    assert is_json(" Application/CloudEvents+json;charset=utf-8")
