from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from tests.unit.cli.running import Desk


def put(desk: Desk, *lines: Mapping[str, object]) -> None:
    assert desk("put", "--jsonl", "-", stdin="\n".join(map(json.dumps, lines)).encode()).code == 0


def test_json_is_one_object_a_line_newest_last(desk: Desk) -> None:
    put(desk, {"type": "a", "key": "k"}, {"type": "b", "data": {"secret": "s3cr3t"}, "headers": {"auth": "s3cr3t"}})
    listed = desk("list", "--json")
    first, second = listed.objects()
    expected = {"seq": 1, "type": "a", "key": "k", "status": "pending", "attempts": 0, "last_error_code": None}
    assert first | expected == first
    assert second["type"] == "b"
    assert {"id", "created_at", "due_at", "owner", "parked", "size"} <= first.keys()
    assert "s3cr3t" not in listed.out + desk("list").out


def test_a_payload_is_shown_when_it_is_asked_for(desk: Desk) -> None:
    put(desk, {"type": "a", "data": {"n": 1}, "headers": {"h": "v"}})
    desk("put", "b", "--body", "plain", "--content-type", "text/plain")
    (desk.folder / "bytes").write_bytes(b"\xff\x00")
    desk("put", "c", "--body", "@bytes", "--content-type", "application/pdf")
    first, second, third = desk("list", "--json", "--payload").objects()
    assert (first["data"], first["headers"]) == ({"n": 1}, {"h": "v"})
    assert second["body"] == "plain"
    assert third["body_base64"] == "/wA="
    assert '{"n":1}' in desk("list", "--payload").out


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--type", "a"], [1, 3]),
        (["--key", "k"], [1, 2]),
        (["--status", "pending"], [1, 2, 3]),
        (["--status", "dead"], []),
        (["--since", "1h"], [1, 2, 3]),
        (["--since", "2099-01-01T00:00:00Z"], []),
        (["--limit", "2"], [2, 3]),
        (["--type", "a", "--key", "k"], [1]),
    ],
)
def test_messages_are_chosen_by_what_is_asked(desk: Desk, options: list[str], found: list[int]) -> None:
    put(desk, {"type": "a", "key": "k"}, {"type": "b", "key": "k"}, {"type": "a", "key": "l"})
    assert [each["seq"] for each in desk("list", "--json", *options).objects()] == found


def test_people_see_the_newest_fifty_and_how_many_there_are(desk: Desk) -> None:
    put(desk, *({"type": "a", "key": str(n)} for n in range(60)))
    lines = desk("list").out.splitlines()
    assert lines[0].split() == ["WRITTEN", "ID", "STATUS", "TRIES", "TYPE", "KEY"]
    assert [line.split()[-1] for line in lines[1:51]] == [str(n) for n in range(10, 60)]
    assert lines[51:] == ["", "showing the newest 50 of 60; --limit N shows more"]
    assert "newest 2 of more than 2" in desk("list", "--limit", "2", "--type", "a").out
    assert "newest" not in desk("list", "--limit", "60").out
    assert len(desk("list", "--json").objects()) == 60


def test_a_table_is_aligned_and_cut_to_its_width(desk: Desk) -> None:
    put(desk, {"type": "zz", "key": "k" * 150}, {"type": "t" * 150, "key": "long 漢字 " * 10})
    for columns in (80, 140):
        lines = desk("list", COLUMNS=str(columns)).out.splitlines()
        assert len(lines) == 3
        assert max(map(len, lines)) <= columns
        assert all("…" in line for line in lines[1:])
        assert len({line.index(word) for line, word in zip(lines, ("TYPE", "zz", "ttt"), strict=True)}) == 1


def test_what_a_terminal_would_obey_is_shown_as_an_escape(desk: Desk) -> None:
    nasty = "\x1b[2J\x9b31m\r\n\u202e[bold]x[/bold]"
    desk.execute("INSERT INTO outbox (type, key, payload) VALUES (?, ?, ?)", nasty, nasty, nasty)
    for options in (["--payload"], ["--payload", "--json"]):
        out = desk("list", *options, COLUMNS="400").out
        assert all(line.isprintable() for line in out.splitlines())
        assert "[bold]x[/bold]" in out
    assert r"\x1b[2J\x9b31m\r\n\u202e" in desk("list", COLUMNS="400").out


def test_a_dead_message_is_said_to_be_perhaps_delivered(desk: Desk) -> None:
    put(desk, {"type": "a"})
    desk.execute("UPDATE outbox SET outcome = 'dead', settled_at = 1, last_error_code = 'HTTP_422', attempts = 6")
    listed = desk("list").out
    assert "HTTP_422" in listed
    assert "may have been delivered" in listed


def test_no_messages_are_said(desk: Desk) -> None:
    assert desk("list").out == "no messages\n"
    assert desk("list", "--json").out == ""


@pytest.mark.parametrize(
    "options",
    [["--status", "lost"], ["--since", "yesterday"], ["--since", "2026-11-15T10:00:00"], ["--limit", "0"], ["x"]],
)
def test_a_wrong_question_is_refused(desk: Desk, options: list[str]) -> None:
    desk("list", *options).refuses(code=2)


def test_nothing_is_cut_where_there_is_no_terminal(desk: Desk) -> None:
    key, type_ = "k" * 200, "t" * 200
    put(desk, {"type": type_, "key": key})
    out = desk("list").out
    assert f"{type_}  {key}\n" in out
    assert "…" not in out


@pytest.mark.parametrize("command", [["list"], ["requeue", "--status", "dead"], ["discard", "--status", "dead"]])
def test_a_pattern_is_no_type(desk: Desk, command: list[str]) -> None:
    desk(*command, "--type", "order.*").refuses("'order.*' is a pattern; give one whole type", code=2)
