"""Billing: each order is charged once, however often Kafka delivers its message. `python billing.py` makes its table."""

import os
from typing import Any

import psycopg

from postroom import Inbox, Message

# No order is unique here: it is the inbox that charges each of them once, not a constraint.
TABLE = "CREATE TABLE IF NOT EXISTS charges (order_id text NOT NULL, amount integer NOT NULL)"
inbox = Inbox("billing")


@inbox.on("order.placed")
async def charge(message: Message, tx: Any) -> None:
    """The charge and the row that says that this message was handled are one commit."""
    await tx.execute("INSERT INTO charges VALUES (%s, %s)", [message.key, message.data["amount"]])


if __name__ == "__main__":
    with psycopg.connect(os.environ["POSTROOM_STORE"], autocommit=True) as connection:
        connection.execute(TABLE)
