from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.cli.running import Desk

ID = "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11"


def test_put_prints_the_id_of_what_it_wrote(desk: Desk) -> None:
    put = desk("put", "order.paid", "--key", "order-7", "--data", '{"amount": 12}')
    assert (put.code, put.err) == (0, "")
    assert desk.execute("SELECT id, type, key, payload FROM outbox") == [
        (put.out.strip(), "order.paid", "order-7", '{"amount":12}')
    ]


def test_every_part_of_the_envelope_can_be_given(desk: Desk) -> None:
    options = ["--id", ID, "--topic", "orders", "--aggregate", "order", "--header", "tenant=a=b", "--header", "x=1"]
    more = [
        "--correlation-id",
        "c",
        "--causation-id",
        "d",
        "--idempotency-key",
        "e",
        "--expires",
        "2099-01-01T00:00:00Z",
    ]
    assert desk("put", "order.paid", *options, *more).out == f"{ID}\n"
    (shown,) = desk("list", "--json", "--payload").objects()
    expected = {
        "id": ID,
        "topic": "orders",
        "aggregate": "order",
        "headers": {"tenant": "a=b", "x": "1"},
        "correlation_id": "c",
        "causation_id": "d",
        "idempotency_key": "e",
        "expires_at": "2099-01-01T00:00:00.000000Z",
    }
    assert shown | expected == shown


def test_data_comes_from_a_file_or_from_stdin(desk: Desk) -> None:
    (desk.folder / "data.json").write_text('{"from": "file"}\n')
    assert desk("put", "a.b", "--data", "@data.json").code == 0
    assert desk("put", "a.b", "--data", "-", stdin=b'"stdin"').code == 0
    assert desk("put", "a.b", "--data", "null").code == 0
    assert desk("put", "a.b").code == 0
    rows = desk.execute("SELECT payload FROM outbox ORDER BY seq")
    assert rows == [('{"from":"file"}',), ('"stdin"',), ("null",), (None,)]


def test_a_body_is_kept_byte_for_byte(desk: Desk) -> None:
    (desk.folder / "label").write_bytes(b"\x00\xff\x1b label")
    assert desk("put", "label.made", "--body", "@label", "--content-type", "application/pdf").code == 0
    assert desk.execute("SELECT body, content_type FROM outbox") == [(b"\x00\xff\x1b label", "application/pdf")]


def test_a_time_is_rfc_3339_or_a_duration_from_now(desk: Desk) -> None:
    desk("put", "a.b", "--not-before", "2026-11-15T10:00:00+01:00", "--json")
    desk("put", "a.b", "--not-before", "10m")
    first, second = desk("list", "--json").objects()
    assert first["due_at"] == "2026-11-15T09:00:00.000000Z"
    due = datetime.fromisoformat(second["due_at"]) - datetime.now(UTC)
    assert timedelta(minutes=9) < due < timedelta(minutes=10)


def test_json_prints_an_object_per_message(desk: Desk) -> None:
    one = desk("put", "a.b", "--id", ID, "--key", "k", "--json")
    assert one.objects() == [{"id": ID, "type": "a.b", "key": "k"}]
    many = desk("put", "--jsonl", "-", "--json", stdin=b'{"type": "a"}\n{"type": "b", "key": 7}')
    assert [(each["type"], each["key"]) for each in many.objects()] == [("a", None), ("b", "7")]


DEEP = "[" * 100 + "]" * 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x" * 201], "201 characters; the limit is 200"),
        ([""], "no type"),
        (["a\x1b[2Jb"], "control character"),
        (["a.b", "--key", "k" * 201], "201 bytes; the limit is 200"),
        (["a.b", "--key", ""], "empty key"),
        (["a.b", "--key", "k\nk"], "control character"),
        (["a.b", "--header", "bad name=x"], "header named 'bad name'"),
        (["a.b", "--header", "x=a\r\nb"], "control character in header 'x'"),
        (["a.b", "--header", "ce-id=1"], "CloudEvents"),
        (["a.b", "--header", "x=" + "v" * 2049], "the limit is 2,048"),
        (["a.b", "--header", "nothing"], "has no ="),
        (["a.b", "--header", "x=1", "--header", "x=2"], "given twice"),
        (["a.b", "--data", "{amount: 12}"], "not JSON"),
        (["a.b", "--data", "paid"], "Quote it for the shell"),
        (["a.b", "--data", ""], "not JSON"),
        (["a.b", "--data", "NaN"], "NaN is not a JSON number"),
        (["a.b", "--data", "1e999"], "infinity"),
        (["a.b", "--data", r'"\ud800"'], "lone surrogate"),
        (["a.b", "--data", '{"a": 1, "a": 2}'], "'a' is given twice"),
        (["a.b", "--data", DEEP], "deeper than 64"),
        (["a.b", "--data", "[" * 99_000], "not JSON|deeper"),
        (["a.b", "--data", "@nowhere.json"], "nowhere.json"),
        (["a.b", "--data", "@."], "cannot be read"),
        (["a.b", "--data", "1", "--body", "x"], "both given"),
        (["a.b", "--body", "x"], "needs --content-type"),
        (["a.b", "--body", "x", "--content-type", "nonsense"], "content_type"),
        (["a.b", "--id", "7"], "not a UUID"),
        (["a.b", "--not-before", "2026-11-15T10:00:00"], "add one, as in 2026-11-15T10:00:00Z"),
        (["a.b", "--not-before", "2026-02-30T10:00:00Z"], "is not a valid time"),
        (["a.b", "--not-before", "tomorrow"], "is not a valid time"),
        (["a.b", "--not-before", "1794700800"], "is not a valid time"),
        (["a.b", "--expires", "99999999d"], "is not a valid time"),
        (["a.b", "--not-before", "2h", "--expires", "1h"], "not after its not_before"),
        (["a.b", "extra"], "unexpected extra argument"),
        (["a.b", "--kye", "x"], "No such option"),
        ([], "Say what happened"),
        (["a.b", "--jsonl", "x.jsonl"], "leave out TYPE"),
        (["--jsonl", "x.jsonl", "--header", "a=b", "--expires", "1h"], "leave out --header, --expires"),
        (["--jsonl", "x.jsonl"], "'x.jsonl' cannot be read"),
    ],
    ids=lambda value: (" ".join(value) if isinstance(value, list) else value)[:40].encode("unicode_escape").decode(),
)
def test_a_message_that_is_wrong_is_refused_in_one_sentence(desk: Desk, arguments: list[str], said: str) -> None:
    refused = desk("put", *arguments)
    refused.refuses(code=2)
    assert re.search(said, refused.err), refused.err
    assert desk.count == 0


def test_bytes_that_are_no_utf_8_are_refused(desk: Desk) -> None:
    desk("put", "a.b", "--data", '"\udcff"').refuses("is not JSON", code=2)
    desk("put", "a.b", "--key", "\udcff").refuses("lone surrogate", code=2)
    assert desk.count == 0


def test_a_body_that_is_too_large_is_refused(desk: Desk) -> None:
    data = json.dumps("x" * 300_000).encode()
    desk("put", "a.b", "--data", "-", stdin=data).refuses("the limit is 262,144", code=2)
    assert desk.count == 0


def test_a_limit_in_the_settings_is_kept(desk: Desk) -> None:
    desk("put", "a.b", "--data", '"xxx"', POSTROOM_LIMIT_BODY="4").refuses("the limit is 4", code=2)


def test_an_id_that_is_known_is_refused(desk: Desk) -> None:
    assert desk("put", "a.b", "--id", ID).code == 0
    desk("put", "a.b", "--id", ID).refuses("already in the outbox", code=1)
    assert desk.count == 1
