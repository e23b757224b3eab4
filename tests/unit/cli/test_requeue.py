"""`postroom requeue` and `postroom discard`: the same shape, so the same tests where they agree."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.unit.cli.running import Desk, Outcome

from postroom.cli.repair import counting
from postroom.contracts.ops import Status
from postroom.contracts.outbox import Buried, Published, Retry, Verdict
from postroom.message import Message
from postroom.ops.repair import REQUEUE
from postroom.stores import open_store
from postroom.testing.contracts._case import MINUTE, a_relay

VERDICTS: dict[Status, Verdict] = {
    "dead": Buried("HTTP_422", "no"),
    "failed": Retry(MINUTE, "TIMEOUT"),
    "published": Published(),
}
UNKNOWN = "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11"
SECOND_TYPE = "b.second"


def fill(desk: Desk, *statuses: Status) -> list[str]:
    """A message of each status, with keys k0, k1, … and types a.first, b.second in turn; their ids."""
    return asyncio.run(_fill(desk, statuses))


async def _fill(desk: Desk, statuses: Sequence[Status]) -> list[str]:
    messages = [Message(("a.first", SECOND_TYPE)[at % 2], key=f"k{at}") for at in range(len(statuses))]
    wanted = {message.id: status for message, status in zip(messages, statuses, strict=True)}
    async with open_store(f"sqlite:///{desk.folder}/shop.db") as store:
        await store.outbox.put(messages)
        relay = await a_relay(store)
        claims = await relay.claim()
        every = [claimed for claim in claims for claimed in claim.messages]
        settled = [claim for claim in claims if "sending" not in {wanted[each.message.id] for each in claim.messages}]
        verdicts = {
            each.seq: VERDICTS[wanted[each.message.id]] for each in every if wanted[each.message.id] in VERDICTS
        }
        await relay.settle_each(settled, verdicts)
    return [str(message.id) for message in messages]


def statuses(desk: Desk) -> list[str]:
    listed = desk("list", "--json")
    assert listed.code == 0, listed
    return [shown["status"] for shown in listed.objects()]


# ── requeue ──


def test_requeued_messages_are_pending_with_no_attempts_and_the_same_id(desk: Desk) -> None:
    ids = fill(desk, "dead", "failed", "dead")
    requeued = desk("requeue", *ids)
    assert (requeued.code, requeued.out, requeued.err) == (0, "requeued 3 messages\n", "")
    shown = desk("list", "--json").objects()
    assert [(each["id"], each["status"], each["attempts"]) for each in shown] == [(id, "pending", 0) for id in ids]


@pytest.mark.parametrize(
    ("options", "said", "left"),
    [
        (["--status", "dead"], "requeued 3 messages", ["pending", "pending", "pending", "failed"]),
        (["--status", "failed"], "requeued 1 message", ["dead", "dead", "dead", "pending"]),
        (["--status", "dead", "--type", SECOND_TYPE], "requeued 1 message", ["dead", "pending", "dead", "failed"]),
        (["--status", "dead", "--key", "k2"], "requeued 1 message", ["dead", "dead", "pending", "failed"]),
        (["--status", "dead", "--key", "none"], "requeued 0 messages", ["dead", "dead", "dead", "failed"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_messages_are_requeued_by_status_type_and_key(
    desk: Desk, options: list[str], said: str, left: list[str]
) -> None:
    fill(desk, "dead", "dead", "dead", "failed")
    requeued = desk("requeue", *options)
    assert (requeued.code, requeued.out) == (0, f"{said}\n")
    assert statuses(desk) == left


def test_ids_that_cannot_be_requeued_are_said(desk: Desk) -> None:
    dead, failed, sent, pending, flying = fill(desk, "dead", "failed", "published", "pending", "sending")
    requeued = desk("requeue", dead, failed, sent, dead)
    assert (requeued.code, requeued.out) == (0, f"2 of 3 were requeued; {sent} is published\n")
    desk("requeue", sent).refuses(f"Nothing was requeued; {sent} is published.", code=1)
    desk("requeue", UNKNOWN, pending, flying).refuses(
        f"{UNKNOWN} is not in this outbox; {pending} is pending; {flying} is in flight.", code=1
    )


def test_a_dry_run_shows_what_would_be_and_changes_nothing(desk: Desk) -> None:
    dead, sent = fill(desk, "dead", "published")
    for options, said in ([dead, sent], f"; {sent} is published"), (["--status", "dead"], ""):
        shown = desk("requeue", "--dry-run", *options)
        assert shown.code == 0
        head, row, blank, last = shown.out.splitlines()
        assert head.startswith("WRITTEN")
        assert dead in row
        assert (blank, last) == ("", f"would requeue 1 message{said}")
    assert desk("requeue", "--dry-run", "--status", "failed").out == "would requeue 0 messages\n"
    assert statuses(desk) == ["dead", "published"]


def test_a_long_dry_run_is_cut(desk: Desk) -> None:
    many: list[Status] = ["dead"] * 52
    fill(desk, *many)
    lines = desk("requeue", "--dry-run", "--status", "dead").out.splitlines()
    assert len(lines) == 1 + 50 + 2
    assert lines[-1] == "would requeue 52 messages (2 are not shown)"


def test_a_parked_key_moves_again(desk: Desk) -> None:
    (dead,) = fill(desk, "dead")
    desk("put", "a.b", "--key", "k0")
    assert desk("list", "--json").objects()[1]["parked"] is True
    assert desk("requeue", dead).code == 0
    assert [each["parked"] for each in desk("list", "--json").objects()] == [False, False]


def test_what_is_older_than_inboxes_remember_is_requeued_by_force_alone(desk: Desk) -> None:
    old, new = fill(desk, "dead", "dead")
    desk.execute("UPDATE outbox SET created_at = created_at - ? WHERE id = ?", 31 * 86_400_000_000, old)
    for options in ([old, new], ["--status", "dead"], ["--status", "dead", "--dry-run"]):
        desk("requeue", *options).refuses(f"1 message of these, such as {old}, is older", "(30d)", "--force", code=1)
    assert statuses(desk) == ["dead", "dead"]
    assert desk("requeue", new).code == 0
    forced = desk("requeue", "--status", "dead", "--force")
    assert (forced.code, forced.out) == (0, "requeued 1 message\n")
    assert statuses(desk) == ["pending", "pending"]


def test_what_is_nearly_as_old_needs_no_force(desk: Desk) -> None:
    (dead,) = fill(desk, "dead")
    desk.execute("UPDATE outbox SET created_at = created_at - ?", 29 * 86_400_000_000)
    assert desk("requeue", dead).code == 0


# ── both ──


@pytest.mark.parametrize("name", ["requeue", "discard"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Say which messages: give their ids, or --status dead|failed"),
        (["--type", "a.first"], "Say which messages"),
        (["--key", "k0"], "Say which messages"),
        ([UNKNOWN, "--status", "dead"], "leave out --status"),
        ([UNKNOWN, "--type", "a", "--key", "k"], "leave out --type, --key"),
        (["order-7"], "'order-7' is not the id of a message"),
        (["--status", "published"], "'published' is not one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_choice_that_is_none_is_wrong_use(desk: Desk, name: str, options: list[str], said: str) -> None:
    desk(name, *options).refuses(said, f"postroom {name} --help", code=2)


# ── discard ──


def test_discarded_messages_are_said(desk: Desk) -> None:
    dead, failed, pending, sent = fill(desk, "dead", "failed", "pending", "published")
    discarded = desk("discard", "--yes", dead, failed, pending)
    assert (discarded.code, discarded.out) == (0, "discarded 3 messages\n")
    desk("discard", "--yes", sent).refuses(f"Nothing was discarded; {sent} is published.", code=1)
    assert statuses(desk) == ["discarded", "discarded", "discarded", "published"]


def test_without_a_terminal_and_without_yes_nothing_is_discarded(desk: Desk) -> None:
    fill(desk, "dead")
    desk("discard", "--status", "dead").refuses("no terminal to ask at", "--yes", code=2)
    assert desk("discard", "--status", "dead", "--dry-run").out.endswith("would discard 1 message\n")
    assert statuses(desk) == ["dead"]
    assert desk("discard", "--status", "dead", "--yes").out == "discarded 1 message\n"


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y", 0, "discarded"), ("n", 1, "dead"), ("", 1, "dead"), ("\x04", 130, "dead")]
)
def test_at_a_terminal_a_person_is_asked(desk: Desk, answer: str, code: int, left: str) -> None:
    dead, sent = fill(desk, "dead", "published")
    for arguments in ([dead, sent], ["--status", "dead"]):
        asked = _at_a_terminal(desk, answer, "discard", *arguments)
        assert "Discard 1 message? There is no way back. [y/N]" in asked.err
        assert dead in asked.out
        assert asked.code == code
        assert statuses(desk) == [left, "published"]
        if left == "discarded":
            return


def test_at_a_terminal_nothing_is_asked_about_nothing(desk: Desk) -> None:
    (sent,) = fill(desk, "published")
    assert _at_a_terminal(desk, "y", "discard", "--status", "dead") == Outcome(0, "discarded 0 messages\n", "")
    _at_a_terminal(desk, "y", "discard", sent).refuses(f"{sent} is published.", code=1)


WHILE_ASKED = """
import asyncio, sys
import click
from postroom import Message, open_store
from postroom.cli import main
async def put():
    async with open_store("sqlite:///shop.db") as store:
        await store.outbox.put([Message("a.late")])
def answer(*_, **__):
    asyncio.run(put())
    return True
click.confirm = answer
sys.stdin.isatty = lambda: True
sys.argv = ["postroom", "discard", "--status", "pending"]
main()
"""


def test_what_is_written_while_a_person_thinks_is_not_discarded(desk: Desk) -> None:
    fill(desk, "pending")
    done = subprocess.run(
        [sys.executable, "-c", WHILE_ASKED],
        cwd=desk.folder,
        env=desk.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("discarded 1 message\n")
    assert statuses(desk) == ["discarded", "pending"]


def _at_a_terminal(desk: Desk, answer: str, *arguments: str) -> Outcome:
    """Run it with a terminal as its stdin, at which this is typed."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "postroom", *arguments],
            stdin=theirs,
            capture_output=True,
            text=True,
            cwd=desk.folder,
            env=desk.environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_an_interrupted_requeue_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with counting(REQUEUE) as told:
            told(1_000)
            told(2_000)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "requeued 2,000 messages, and stopped there: run it again for the rest" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "done"), [(["requeue"], "requeued"), (["discard", "--yes"], "discarded")])
def test_programs_are_told_what_was_done_in_json(desk: Desk, command: list[str], done: str) -> None:
    dead, _, sent = fill(desk, "dead", "failed", "published")
    would = desk(*command, "--json", "--dry-run", dead, sent)
    assert would.objects() == [{f"would_{command[0]}": 1, "left_alone": {sent: "published"}}]
    assert desk(*command, "--json", dead, sent).objects() == [{done: 1, "left_alone": {sent: "published"}}]
    assert desk(*command, "--json", "--status", "failed").objects() == [{done: 1, "left_alone": {}}]
    desk(*command, "--json", sent).refuses(f"{sent} is published", code=1)


def test_with_json_nobody_is_asked(desk: Desk) -> None:
    (dead,) = fill(desk, "dead")
    desk("discard", "--json", dead).refuses("give --yes too", code=2)
    assert statuses(desk) == ["dead"]


def test_the_beginning_of_an_id_names_a_message(desk: Desk) -> None:
    (dead,) = fill(desk, "dead")
    assert desk("requeue", dead[:13]).out == "requeued 1 message\n"
