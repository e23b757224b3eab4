"""No command shows what a stranger wrote in a way that a terminal obeys, or that forges a line; nor all of it."""

from __future__ import annotations

import re

from tests.unit.cli.inboxes import consume
from tests.unit.cli.running import Desk

RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
HOSTILE = r"no\n2026-11-18 ERROR forged \x1b[2J\x00 \u202eturned \udc80 \x9b1m"
HANDLERS = f"""
SAID = "{HOSTILE}" + "x" * 50_000_000
def refuse(message): raise ValueError(SAID)
"""
RECEIVED = f"""
import asyncio
from datetime import timedelta
from postroom import Inbox, Message, RetryPolicy, open_publisher
from postroom.inbox import RejectMessage
from postroom.contracts.transport import Envelope

SAID = "{HOSTILE}"
inbox = Inbox("billing", retry=RetryPolicy.parse("0.01", max_attempts=2))

@inbox.on("*")
def handle(message, tx):
    kind = RejectMessage if message.data == 1 else ValueError
    raise kind(SAID + "x" * 50_000_000)

messages = [Message(SAID.replace("\\x00", "").replace("\\udc80", ""), key=SAID, data=number) for number in (1, 2)]
messages.append(Message("order.paid", key="k", body=b"\\x1b[2J", content_type="text/plain"))
publisher = open_publisher("memory://shop/orders")
asyncio.run(publisher.publish([Envelope(message) for message in messages], timeout=timedelta(seconds=5)))
"""


def shown(desk: Desk, *command: str) -> None:
    done = desk(*command)
    for text in (done.out, done.err):
        assert not RAW.search(text), command
        assert len(text) < 50_000, command
        assert not [line for line in text.splitlines() if line.startswith("2026-11-18 ERROR")]


def test_what_a_function_raises_is_shown_in_lines_of_ours(desk: Desk) -> None:
    (desk.folder / "handlers.py").write_text(HANDLERS)
    desk("put", "order.paid", "--key", "a", "--id", "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
    relay = ["relay", "--to", "local://handlers:refuse", "--drain", "--max-attempts", "1"]
    shown(desk, *relay)
    shown(desk, "list")
    shown(desk, "list", "--json")
    shown(desk, "explain", "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
    shown(desk, "status")


def test_what_is_received_and_what_its_handler_raises_is_shown_in_lines_of_ours(desk: Desk) -> None:
    (desk.folder / "billing.py").write_text(RECEIVED)
    shown(desk, *consume())
    shown(desk, "inbox", "list")
    shown(desk, "inbox", "list", "--payload")
    shown(desk, "inbox", "status")
    assert "HANDLER_ERROR" in desk("inbox", "list").out


def test_a_type_and_a_key_written_by_hand_are_shown_in_lines_of_ours(desk: Desk) -> None:
    desk("put", "order.paid", "--key", "a")
    hostile = "no\n2026-11-18 ERROR forged \x1b[2J \u202eturned \x9b1m" + "x" * 1_000_000
    desk.execute("UPDATE outbox SET type = ?, key = ?", hostile, hostile)
    shown(desk, "list")
    shown(desk, "status")
