"""What a service logs: the user's own lines, the first failure of a message with its traceback, later ones in a line."""

from __future__ import annotations

import re

import pytest
from tests.unit.cli.inboxes import BAD, GOOD, billing, consume
from tests.unit.cli.running import Desk

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "
APP = """
import logging
from billing import inbox
{setup}
log = logging.getLogger("shop.billing")
inbox.handlers.clear()

def ask_the_bank():
    raise OSError("the bank is closed\\n2026-01-01 ERROR forged \\x1b[2J")

@inbox.on("order.paid")
{way}def charge(message, tx):
    log.debug("looking at %s", message.key)
    log.info("charging %s", message.key)
    logging.getLogger("urllib3").warning("a driver's line")
    if message.data["amount"] < 0:
        ask_the_bank()
"""
SENDING = """
import logging

def send(message):
    logging.getLogger("shop").info("sending %s", message.key)
    raise KeyError("no such customer")
"""


def shop(desk: Desk, *, setup: str = "", way: str = "") -> None:
    billing(desk, many=3)
    (desk.folder / "shop.py").write_text(APP.format(setup=setup, way=way))


def run(desk: Desk, *options: str) -> list[str]:
    """What is on stderr."""
    return desk(*consume("--app", "shop:inbox", *options)).err.splitlines()


@pytest.mark.parametrize("way", ["", "async "])
def test_the_first_failure_has_the_traceback_and_the_users_lines_are_there(desk: Desk, way: str) -> None:
    shop(desk, way=way)
    lines = run(desk)
    # Two keys are two threads: either may be the first.
    assert [line for line in lines if re.fullmatch(rf"{TIME}INFO shop.billing: charging order-7", line)], lines
    (at,) = [number for number, line in enumerate(lines) if "try 1 of 2" in line]
    told = rf"{TIME}WARNING postroom.inbox: Message {BAD} \(order.paid, key order-8\) failed, try 1 of 2, next try in 10ms: "
    assert re.match(
        told + r"HANDLER_ERROR: OSError: the bank is closed\\n2026-01-01 ERROR forged \\x1b\[2J$", lines[at]
    )
    assert lines[at + 1] == "    Traceback (most recent call last):"
    trace = "\n".join(lines[at + 1 :])
    assert "in charge" in trace
    assert "in ask_the_bank" in trace
    assert "postroom/inbox" not in trace, "only the user's frames"
    assert "\x1b" not in trace
    assert not [line for line in lines if line.startswith("2026-01-01")], "no line is forged"
    dead = [line for line in lines if " ERROR postroom.inbox: " in line]
    assert len(dead) == 1
    assert f"Message {BAD} (order.paid, key order-8) is dead: MAX_ATTEMPTS: HANDLER_ERROR: OSError: the bank" in dead[0]
    assert sum("Traceback" in line for line in lines) == 1, "later failures are a line"
    assert "driver" not in "".join(lines)
    (row,) = desk("inbox", "list", "--json").objects()
    assert row["error"].splitlines()[0].startswith("HANDLER_ERROR: OSError: the bank is closed")
    assert "in ask_the_bank" in row["error"], "the end of the traceback is kept"
    (shown,) = desk("inbox", "list").out.splitlines()[1:]
    assert "ask_the_bank" not in shown


def test_the_level_is_chosen(desk: Desk) -> None:
    shop(desk)
    assert any("DEBUG shop.billing: looking at order-7" in line for line in run(desk, "--log-level", "debug"))
    shop(desk)
    assert not any("charging" in line for line in run(desk, "--log-level", "warning"))
    desk(*consume("--log-level", "loud")).refuses("'loud' is not one of", code=2)


def test_whoever_sets_up_logging_keeps_it(desk: Desk) -> None:
    shop(desk, setup="logging.basicConfig(format='MINE %(message)s', level='INFO')")
    lines = run(desk)
    assert "MINE charging order-7" in lines
    assert any(line.startswith(f"MINE Message {BAD}") for line in lines)
    assert not any(re.match(TIME, line) for line in lines)


def test_a_relays_function_is_told_of_in_the_same_way(desk: Desk) -> None:
    (desk.folder / "sending.py").write_text(SENDING)
    desk("put", "order.paid", "--key", "order-7")
    done = desk("relay", "--to", "local://sending:send", "--drain", "--backoff", "10ms", "--max-attempts", "2")
    assert done.code == 3
    lines = done.err.splitlines()
    assert sum(bool(re.fullmatch(rf"{TIME}INFO shop: sending order-7", line)) for line in lines) == 2
    failed = [line for line in lines if "The function failed for message" in line]
    assert len(failed) == 2, "each try is told of"
    assert failed[0].endswith("(order.paid, key order-7): KeyError: 'no such customer'")
    assert sum("Traceback" in line for line in lines) == 1
    assert any("in send" in line for line in lines)
    (row,) = desk("list", "--json").objects()
    assert "in send" in row["last_error"]
    shown = desk("list").out
    assert "KeyError: 'no such customer'" in shown
    assert "in send" not in shown


def test_what_is_failing_or_handled_is_listed(desk: Desk) -> None:
    billing(desk)
    desk(*consume())
    (handled,) = desk("inbox", "list", "--status", "handled", "--json").objects()
    assert (handled["id"], handled["consumer"], handled["status"]) == (str(GOOD), "billing", "handled")
    assert (handled["attempts"], handled["code"]) == (1, None)
    assert desk("inbox", "list", "--status", "failing").out == "nothing is failing\n"
    desk.execute(
        "UPDATE inbox SET outcome = 'failing', last_error_code = 'X', last_error = 'no luck' WHERE outcome = 'handled'"
    )
    (line,) = desk("inbox", "list", "--status", "failing").out.splitlines()[1:]
    assert line.split()[:2] == [str(GOOD), "billing"]
    assert line.endswith("X: no luck")
    assert len(desk("inbox", "list", "--status", "dead").out.splitlines()) == 2
    desk("inbox", "list", "--status", "failing", "--key", "a").refuses(
        "--key is not recorded for messages that are failing", code=2
    )


def test_explain_says_what_an_inbox_did(desk: Desk) -> None:
    billing(desk)
    desk(*consume())
    assert re.match(r"The inbox billing handled it at .*, at the first try\.", desk("explain", str(GOOD)).out)
    dead = desk("explain", str(BAD))
    assert dead.code == 0
    assert "The inbox billing gave it up at" in dead.out
    assert "NEGATIVE: RejectMessage: a negative amount." in dead.out
    assert f"postroom inbox requeue --consumer billing {BAD}" in dead.out
    (told,) = desk("explain", "--json", str(GOOD)).objects()
    assert (told["id"], told["status"], len(told["sentences"])) == (str(GOOD), None, 1)
