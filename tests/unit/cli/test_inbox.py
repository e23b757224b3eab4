"""`postroom inbox`: what was received, what is dead, and how it goes again."""

from __future__ import annotations

import re

import pytest
from tests.unit.cli.inboxes import BAD, GOOD, billing, consume
from tests.unit.cli.running import Desk


@pytest.fixture
def handled(desk: Desk) -> Desk:
    """A desk whose inbox has handled one message and dead another."""
    billing(desk)
    assert desk(*consume()).code == 3
    return desk


# ── status ──


def test_status_counts_by_consumer(handled: Desk) -> None:
    shown = handled("inbox", "status")
    assert (shown.code, shown.err) == (0, "")
    head, row = shown.out.splitlines()
    assert head.split() == ["CONSUMER", "HANDLED", "FAILING", "DEAD", "REQUEUED"]
    assert row.split() == ["billing", "1", "0", "1", "0"]
    objects = handled("inbox", "status", "--json").objects()
    assert objects == [{"consumer": "billing", "handled": 1, "failing": 0, "dead": 1, "requeued": 0}]


def test_the_table_of_a_status_is_aligned_and_cuts_only_names_where_it_must(handled: Desk) -> None:
    head, row = handled("inbox", "status").out.splitlines()
    assert [row.index("billing"), *(number.end() for number in re.finditer(r"\d", row))] == [
        head.index("CONSUMER"),
        *(title.end() for title in re.finditer(r"HANDLED|FAILING|DEAD|REQUEUED", head)),
    ]
    narrow = handled("inbox", "status", COLUMNS="40").out.splitlines()
    assert max(map(len, narrow)) <= 40
    assert narrow[1].split() == ["billi…", "1", "0", "1", "0"]


def test_of_an_inbox_with_nothing_in_it_that_is_said(desk: Desk) -> None:
    assert desk("inbox", "status").out == "nothing was received\n"
    assert desk("inbox", "status", "--json").out == ""
    assert desk("inbox", "list").out == "nothing is dead\n"
    assert desk("inbox", "list", "--json").out == ""


# ── list ──


def test_list_shows_what_is_dead_and_why_but_not_what_it_says(handled: Desk) -> None:
    head, row = handled("inbox", "list").out.splitlines()
    assert head.split() == ["ID", "CONSUMER", "TYPE", "KEY", "TRIES", "WHY"]
    assert row.split()[:4] == [str(BAD), "billing", "order.paid", "order-8"]
    assert row[: head.index("TRIES") + len("TRIES")].endswith("    0"), "a number ends where its title does"
    assert "NEGATIVE: RejectMessage: a negative amount" in row
    assert "-1" not in row


def test_list_with_payload_shows_what_it_says(handled: Desk) -> None:
    assert handled("inbox", "list", "--payload").out.splitlines()[-1] == f'{BAD} {{"amount":-1}}'


def test_list_as_json_is_for_programs(handled: Desk) -> None:
    (shown,) = handled("inbox", "list", "--json").objects()
    assert shown["id"] == str(BAD)
    assert (shown["consumer"], shown["type"], shown["key"], shown["topic"]) == (
        "billing",
        "order.paid",
        "order-8",
        "orders",
    )
    assert (shown["code"], shown["requeued_at"]) == ("NEGATIVE", None)
    assert "event" not in shown
    assert "body" not in shown
    (told,) = handled("inbox", "list", "--json", "--payload").objects()
    assert told["body"] == '{"amount":-1}'
    assert (told["event"]["id"], told["event"]["type"]) == (str(BAD), "order.paid")


@pytest.mark.parametrize(
    "options",
    [["--consumer", "mailing"], ["--type", "order.sent"], ["--key", "order-7"], ["--code", "MAX_ATTEMPTS"]],
    ids=" ".join,
)
def test_what_is_not_asked_for_is_neither_listed_nor_requeued(handled: Desk, options: list[str]) -> None:
    assert handled("inbox", "list", *options).out == "nothing is dead\n"
    assert handled("inbox", "requeue", *options).out == "requeued 0 messages\n"
    assert len(handled("inbox", "list", "--json").objects()) == 1


# ── requeue ──


@pytest.mark.parametrize(
    "options",
    [[str(BAD)], ["--consumer", "billing"], ["--type", "order.paid"], ["--key", "order-8"], ["--code", "NEGATIVE"]],
    ids=" ".join,
)
def test_requeue_lets_go_what_is_named_and_a_dry_run_nothing(handled: Desk, options: list[str]) -> None:
    dry = handled("inbox", "requeue", "--dry-run", *options)
    assert (dry.code, dry.out) == (0, "would requeue 1 message\n")
    assert handled("inbox", "status", "--json").objects()[0]["dead"] == 1, "a dry run changes nothing"
    requeued = handled("inbox", "requeue", *options)
    assert (requeued.code, requeued.out) == (0, "requeued 1 message\n")
    assert handled("inbox", "list", "--json").objects()[0]["requeued_at"] is not None
    assert handled("inbox", "requeue", "--dry-run", *options).out == "would requeue 0 messages\n"


def test_a_mended_handler_takes_what_was_requeued(handled: Desk) -> None:
    billing(handled, many=0)  # the broker has it no more
    (handled.folder / "mended").touch()
    assert handled("inbox", "requeue", str(BAD)).code == 0
    assert handled(*consume("--until-idle", "3s")).code == 0
    assert sorted(handled.execute("SELECT amount FROM charges")) == [(-1,), (12,)]
    assert handled("inbox", "list").out == "nothing is dead\n"
    assert handled("inbox", "status", "--json").objects()[0]["handled"] == 2


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        ([], "Say which messages: give their ids, or --consumer, --type, --key or --code.", 2),
        (["order-7"], "'order-7' is not a valid UUID", 2),
        ([str(GOOD)], "Nothing was requeued: none of these ids is dead here.", 1),
    ],
    ids=["nothing", "no id", "handled"],
)
def test_a_choice_that_is_none_is_refused(handled: Desk, options: list[str], said: str, code: int) -> None:
    handled("inbox", "requeue", *options).refuses(said, code=code)


# ── all three ──


@pytest.mark.parametrize("command", ["status", "list", "requeue"])
def test_a_store_that_cannot_be_used_is_refused_in_a_sentence(empty: Desk, command: str) -> None:
    which = ["--consumer", "billing"] if command == "requeue" else []
    empty("inbox", command, *which).refuses("no file shop.db", "postroom init", code=1)
    empty("inbox", command, *which, store="memory://").refuses("There is no inbox on memory://", code=2)
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize("command", ["status", "list", "requeue"])
def test_each_has_help(empty: Desk, command: str) -> None:
    shown = empty("inbox", command, "--help")
    assert shown.code == 0
    assert "--store" in shown.out
    assert f"  {command}" in empty("inbox", "--help").out
