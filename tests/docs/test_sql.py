"""```sql: statements for a database with our tables and one of orders: SQLite, or those that `store=sqlite,postgres` names.

What is inserted into the outbox by hand is a whole message.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.docs.blocks import Block, all_of
from tests.docs.running import ORDERS, a_shop, keys_in, messages, prepare

BLOCKS = all_of("sql")


def stores(block: Block) -> list[str]:
    return block.options.get("store", "sqlite").split(",")


def each_of(store: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [b for b in BLOCKS if store in stores(b)], ids=str)


def is_a_whole_message(block: Block, url: str) -> None:
    if "INSERT INTO outbox " in block.code:
        assert [record.message.key for record in messages(url)] == sorted(keys_in(block.code))


@each_of("sqlite")
def test_a_block_of_sql_runs_on_sqlite(block: Block, tmp_path: Path) -> None:
    url = a_shop(tmp_path, ORDERS)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript(block.code)
    is_a_whole_message(block, url)


@each_of("postgres")
def test_a_block_of_sql_runs_on_postgres(block: Block, postgres_database: str) -> None:
    prepare(postgres_database)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(ORDERS)
        connection.execute(block.code)
    is_a_whole_message(block, postgres_database)


def test_every_block_of_sql_is_run_somewhere() -> None:
    """Each test above names a store; a block for another would be run nowhere."""
    assert BLOCKS
    for block in BLOCKS:
        assert set(stores(block)) <= {"sqlite", "postgres"}, str(block)
