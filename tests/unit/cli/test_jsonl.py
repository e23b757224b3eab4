from __future__ import annotations

import json
import re

import pytest
from tests.unit.cli.running import Desk


def test_many_messages_are_written_in_the_order_of_their_lines(desk: Desk) -> None:
    lines = (
        b'{"type": "a", "key": "k", "data": {"n": 1}}\n\n   \n{"type": "b", "data": null}\r\n{"type": "c", "key": null}'
    )
    put = desk("put", "--jsonl", "-", stdin=lines)
    assert (put.code, put.out, put.err) == (0, "put 3 messages\n", "")
    rows = desk.execute("SELECT type, key, payload FROM outbox ORDER BY seq")
    assert rows == [("a", "k", '{"n":1}'), ("b", None, "null"), ("c", None, None)]


def test_a_line_may_have_every_part_of_the_envelope(desk: Desk) -> None:
    line = {
        "type": "a",
        "key": "k",
        "data": [1],
        "id": "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11",
        "topic": "t",
        "headers": {"h": "v"},
        "aggregate": "g",
        "correlation_id": "c",
        "causation_id": "d",
        "idempotency_key": "e",
        "content_type": "application/vnd.x+json",
        "expires_at": "2099-01-01T00:00:00.000000Z",
    }
    (desk.folder / "m.jsonl").write_text(json.dumps(line | {"not_before": "10m"}))
    assert desk("put", "--jsonl", "m.jsonl").out == "put 1 message\n"
    (shown,) = desk("list", "--json", "--payload").objects()
    assert shown | line == shown
    assert shown["due_at"]


def test_no_lines_are_no_messages(desk: Desk) -> None:
    assert desk("put", "--jsonl", "-", stdin=b"\n").out == "put 0 messages\n"


def test_a_hundred_thousand_lines_are_one_transaction(desk: Desk) -> None:
    lines = "".join(f'{{"type": "order.paid", "key": "order-{n % 999}", "data": {n}}}\n' for n in range(100_000))
    put = desk("put", "--jsonl", "-", stdin=lines.encode())
    assert (put.out, put.err) == ("put 100,000 messages\n", "")
    assert desk.execute("SELECT count(*), min(payload + 0), max(payload + 0) FROM outbox") == [(100_000, 0, 99_999)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("7", "not a JSON object"),
        ("{}", "has no type"),
        ('{"type": 7}', "type is a number; give a text"),
        ('{"type": "a", "id": 7}', "id is a number"),
        ('{"type": "a", "id": "7"}', "not a UUID"),
        ('{"type": "a", "key": true}', "key is true or false"),
        ('{"type": "a", "key": ["x"]}', "key is a list"),
        ('{"type": "a", "headers": ["x"]}', "headers of type list"),
        ('{"type": "a", "headers": {"x": 1}}', "of type int"),
        ('{"type": "a", "headers": {"x": "a\\r\\nb"}}', "control character"),
        ('{"type": "a", "not_before": "2026-11-15T10:00:00"}', "no time zone"),
        ('{"type": "a", "expires_at": 7}', "expires_at is a number"),
        ('{"type": "a", "expires": "1h"}', "'expires' is unknown; there are type, key, data"),
        ('{"type": "a", "type": "b"}', "'type' is given twice"),
        ('{"type": "a", "data": NaN}', "NaN"),
        ('{"type": "a", "data": "\\ud800"}', "lone surrogate"),
        (f'{{"type": "a", "data": {"[" * 100 + "]" * 100}}}', "deeper than 64"),
        (f'{{"type": "{"x" * 201}"}}', "the limit is 200"),
        ('{"type": "a", "idempotency_key": "i"}', "already on line 1"),
        ('{"type": "a", "id": "018F2C5E-7C1A-7B3E-9D53-2F1F0A6F4C11"}', "already on line 1"),
        ("x" * 9_000_000, "longer than"),
        ("\udcff", "not JSON"),
    ],
    ids=lambda value: value[:40].encode("unicode_escape").decode(),
)
def test_a_bad_line_is_named_and_nothing_is_written(desk: Desk, line: str, said: str) -> None:
    good = '{"type": "a", "id": "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11", "idempotency_key": "i"}'
    lines = f'{good}\n\n{line}\n{{"type": "c"}}\n'.encode(errors="surrogateescape")
    refused = desk("put", "--jsonl", "-", stdin=lines)
    refused.refuses("stdin, line 3: ", "Nothing was written.", code=2)
    assert re.search(said, refused.err), refused.err
    assert desk.count == 0


def test_a_known_id_in_the_last_of_many_lines_takes_all_of_them_back(desk: Desk) -> None:
    known = desk("put", "a.b").out.strip()
    lines = '{"type": "a"}\n' * 2500 + json.dumps({"type": "b", "id": known})
    desk("put", "--jsonl", "-", stdin=lines.encode()).refuses("already in the outbox", code=1)
    assert desk.count == 1
