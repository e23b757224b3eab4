"""A module `billing` with an inbox, and a broker in memory that has messages in it once the module is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tests.unit.cli.running import Desk

SOURCE = "memory://shop/orders"
GOOD, BAD, ODD = (UUID(int=number, version=4) for number in (1, 2, 3))
BILLING = """
import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import UUID
from postroom import Inbox, Message, RetryPolicy, open_publisher
from postroom.inbox import RejectMessage
from postroom.contracts.transport import Envelope

inbox = Inbox("billing", retry=RetryPolicy.parse("0.01", max_attempts=2))
no_inbox = "a text"

@inbox.on("order.paid")
def charge(message, tx):
    if message.data["amount"] < 0 and not Path("mended").exists():
        raise RejectMessage("a negative amount", code="NEGATIVE")
    tx.execute("INSERT INTO charges VALUES (?)", [message.data["amount"]])

messages = [
    Message("order.paid", id=UUID("{good}"), key="order-7", data={{"amount": 12}}),
    Message("order.paid", id=UUID("{good}"), key="order-7", data={{"amount": 12}}),
    Message("order.paid", id=UUID("{bad}"), key="order-8", data={{"amount": -1}}),
    Message("order.lost", id=UUID("{odd}"), key="order-9"),
]
publisher = open_publisher("memory://shop/orders")
asyncio.run(publisher.publish([Envelope(message) for message in messages[:{many}]], timeout=timedelta(seconds=5)))
"""


def billing(desk: Desk, *, many: int = 4) -> None:
    """Write the module, with so many of its messages, and the table that it writes to."""
    text = BILLING.format(good=GOOD, bad=BAD, odd=ODD, many=many)
    (desk.folder / "billing.py").write_text(text)
    desk.execute("CREATE TABLE IF NOT EXISTS charges (amount INTEGER)")


def consume(*options: str) -> Sequence[str]:
    """The command that handles all that is there."""
    return ["consume", "--from", SOURCE, "--app", "billing:inbox", "--until-idle", "200ms", *options]
