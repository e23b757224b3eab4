"""```python given=session: a few lines out of a service with SQLAlchemy. They are run where its names are.

These are `session`, an `order` that is not saved yet, `outbox` and `Message`. Afterwards order and message are committed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.docs.blocks import Block, all_of, each
from tests.docs.projects import MODELS
from tests.docs.running import ORDERS, a_shop, messages, run

GIVEN = f"""
{MODELS}
from postroom import Message, Outbox
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

outbox, session = Outbox(), Session(create_engine("sqlite:///shop.db"))
order = Order(id="order-7", amount=12)
"""


def check_lines(code: str, folder: Path) -> None:
    shop = a_shop(folder, ORDERS)
    run(GIVEN + code, folder)
    with closing(sqlite3.connect(folder / "shop.db")) as orders:
        assert orders.execute("SELECT * FROM orders").fetchall() == [("order-7", 12)]
    assert [(record.message.key, record.message.data) for record in messages(shop)] == [("order-7", {"amount": 12})]


@each("lines")
def test_a_few_lines_commit_an_order_and_its_message(block: Block, tmp_path: Path) -> None:
    check_lines(block.code, tmp_path)


@pytest.mark.parametrize(("right", "wrong"), [("order.id", "order.ident"), ("session.begin()", "session")])
def test_lines_that_name_nothing_or_commit_nothing_are_found(right: str, wrong: str, tmp_path: Path) -> None:
    (block,) = all_of("lines")
    assert right in block.code
    with pytest.raises(AssertionError):
        check_lines(block.code.replace(right, wrong), tmp_path)
