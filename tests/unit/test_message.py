"""The message: frozen, with an id that sorts by time, and a body that is fixed at once."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from postroom.errors import InvalidMessage
from postroom.message import Message, cloudevent, from_cloudevent, rfc3339, uuid7
from postroom.text import is_storable

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_a_message_cannot_be_changed() -> None:
    message = Message("order.paid", key="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.key = "b"  # type: ignore[misc]  # that is what is tested


def test_changing_the_data_or_headers_afterwards_changes_nothing() -> None:
    data, headers = {"amount": 12}, {"x-tenant": "acme"}
    message = Message("order.paid", data=data, headers=headers)
    data["amount"] = 99
    headers["x-tenant"] = "other"
    assert message.data == {"amount": 12}
    assert message.headers == {"x-tenant": "acme"}


def test_a_key_that_is_no_text_is_made_one() -> None:
    assert Message("order.paid", key=7).key == "7"
    assert Message("order.paid", key=UUID(int=7)).key == "00000000-0000-0000-0000-000000000007"
    assert Message("order.paid").key is None


def test_null_is_a_value_and_no_data_is_none() -> None:
    assert Message("order.paid", data=None).body == b"null"
    assert Message("order.paid").body is None
    with pytest.raises(InvalidMessage, match="no body"):
        _ = Message("order.paid").data


def test_data_and_body_exclude_each_other() -> None:
    with pytest.raises(InvalidMessage, match="both data and body"):
        Message("order.paid", data=1, body=b"1")


def test_replace_keeps_the_id_and_takes_new_data() -> None:
    message = Message("order.paid", key="a", data=1)
    other = message.replace(data=2)
    assert (other.id, other.key, other.data) == (message.id, "a", 2)
    assert message.data == 1


def test_a_message_survives_pickling_and_copying_and_has_a_hash() -> None:
    message = Message("order.paid", key="a", data=1, headers={"x": "y"})
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    assert len({message, copy.copy(message)}) == 1


@pytest.mark.parametrize("wrong", ["seven", 7, "", b"x" * 16])
def test_an_id_that_is_no_uuid_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidMessage, match="is not a UUID"):
        Message("order.paid", id=wrong)  # type: ignore[arg-type]  # that is what is tested


def test_ids_are_version_7_and_never_the_same() -> None:
    ids = [uuid7() for _ in range(10_000)]
    assert len(set(ids)) == 10_000
    assert {(each.version, each.variant) for each in ids} == {(7, "specified in RFC 4122")}


def test_the_id_begins_with_the_time() -> None:
    before = datetime.now(UTC)
    milliseconds = uuid7().int >> 80
    after = datetime.now(UTC)
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    assert before - timedelta(milliseconds=1) <= moment <= after


def test_times_are_written_in_utc() -> None:
    assert rfc3339(NOON) == "2026-11-15T12:00:00.000000Z"
    assert rfc3339(NOON.astimezone(timezone(timedelta(hours=9)))) == "2026-11-15T12:00:00.000000Z"


def test_the_cloudevent_has_the_required_attributes_and_leaves_out_what_is_absent() -> None:
    message = Message("order.paid", id=UUID(int=7), time=NOON, data=1)
    assert cloudevent(message, "/shop") == {
        "specversion": "1.0",
        "id": "00000000-0000-0000-0000-000000000007",
        "source": "/shop",
        "type": "order.paid",
        "time": "2026-11-15T12:00:00.000000Z",
        "datacontenttype": "application/json",
    }


def test_the_cloudevent_names_its_extensions_by_the_rule() -> None:
    message = Message(
        "order.paid",
        key="7",
        aggregate="order",
        correlation_id="c",
        causation_id="d",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        idempotency_key="pay-7",
        expires_at=NOON,
        data=1,
    )
    attributes = cloudevent(message, "/shop")
    assert all(name.isalnum() and name.islower() for name in attributes)
    assert (attributes["subject"], attributes["partitionkey"]) == ("7", "7")
    assert attributes["expirytime"] == "2026-11-15T12:00:00.000000Z"


@pytest.mark.parametrize("hostile", ["a\x00b", "half \ud800"])
@pytest.mark.parametrize(
    "name", ["id", "type", "source", "subject", "partitionkey", "correlationid", "datacontenttype"]
)
def test_an_attribute_that_cannot_be_stored_makes_it_no_event(name: str, hostile: str) -> None:
    attributes = {"id": "7", "type": "order.paid", "source": "shop", name: hostile}
    with pytest.raises(InvalidMessage, match=name) as caught:
        from_cloudevent(attributes, b"1")
    assert is_storable(str(caught.value))


@pytest.mark.parametrize("headers", [{"x": "a\x00b"}, {"x\ud800": "a"}])
def test_a_header_that_cannot_be_stored_makes_it_no_event(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidMessage, match="header"):
        from_cloudevent({"id": "7", "type": "order.paid", "source": "shop"}, b"1", headers)
