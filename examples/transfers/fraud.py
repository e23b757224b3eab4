"""Fraud detection: up to 500 transfers at a time, each looked at once, however often Kafka delivers it."""

from dataclasses import dataclass
from typing import Any

from postroom import Inbox

LARGE = 10_000
inbox = Inbox("fraud-detection")


@dataclass
class Transfer:
    transfer: int
    account: str
    amount: int


@inbox.on("transfer.booked", batch=500)
async def inspect(transfers: list[Transfer], tx: Any) -> None:
    """Add up what each account moved, and note what is too large. A transfer counted twice would be a false total."""
    for each in transfers:
        await tx.execute(
            "INSERT INTO turnover (account, total) VALUES (%s, %s) "
            "ON CONFLICT (account) DO UPDATE SET total = turnover.total + excluded.total",
            [each.account, each.amount],
        )
        if each.amount >= LARGE:
            await tx.execute(
                "INSERT INTO suspicions (transfer, account, reason) VALUES (%s, %s, %s)",
                [each.transfer, each.account, f"{each.amount} at once"],
            )
