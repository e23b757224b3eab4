"""```python inbox: a `billing.py` with an `inbox`, which charges order-7 once, though it comes twice.

It charges order-8, too, unless `buries=CODE` says how that is dead.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tests.docs.blocks import Block, each
from tests.docs.running import CHARGES, SHOP, a_shop, charges, command, environment, run

RECEIVE = """
import asyncio
from datetime import timedelta
from billing import inbox
from postroom import Message, InboxWorker, open_consumer, open_store, open_publisher
from postroom.contracts.transport import Envelope

async def receive():
    publisher = open_publisher("memory://shop/orders")
    paid, refund = (Message("order.paid", key=key, data={"amount": n}) for key, n in (("order-7", 12), ("order-8", -1)))
    await publisher.publish([Envelope(each) for each in (paid, paid, refund)], timeout=timedelta(seconds=5))
    async with open_store("sqlite:///shop.db") as store:
        consumer = open_consumer("memory://shop/orders")
        print(dict((await InboxWorker(inbox, store, consumer).run(until_idle=timedelta(seconds=0.5))).done))

asyncio.run(receive())
"""
"""Receives one message twice, and one that a handler may refuse."""


@each("inbox")
def test_an_inbox_charges_once_and_buries_what_it_says(block: Block, tmp_path: Path) -> None:
    a_shop(tmp_path, CHARGES)
    (tmp_path / "billing.py").write_text(block.code)
    became = ast.literal_eval(run(RECEIVE, tmp_path).splitlines()[-1])
    if buries := block.options.get("buries"):
        assert charges(tmp_path) == [("order-7", 12)]
        assert became["dead"] == 1
        assert dead(tmp_path) == [buries]
    else:
        assert sorted(charges(tmp_path)) == [("order-7", 12), ("order-8", -1)]
        assert "dead" not in became
    assert became["known"] == 1


def dead(folder: Path) -> list[str]:
    listed = command(folder, environment(), "-m", "postroom", "inbox", "list", "--store", SHOP, "--json")
    return [json.loads(line)["code"] for line in listed.stdout.splitlines()]
