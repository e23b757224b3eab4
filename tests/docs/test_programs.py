"""```python: a whole program. It runs in a folder with a `shop.db`, without a warning, and puts the orders that it names.

With `server=postgres` or `server=mongo`, `URL` is the URL of such a database. With `file=shop.py` it is also a file for the
console blocks of its page.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
from tests.docs.blocks import Block, each
from tests.docs.running import DJANGO, ORDERS, a_shop, keys_in, messages, orders_unless_made_in, prepare, run


def put_at(url: str) -> set[str | None]:
    return {record.message.key for record in messages(url)}


@each("program")
def test_a_program_runs_and_puts_its_message(block: Block, tmp_path: Path) -> None:
    shop = a_shop(tmp_path, *orders_unless_made_in(block.code))
    run((DJANGO if "django" in block.code else "") + block.code, tmp_path)
    assert put_at(shop)
    assert keys_in(block.code) <= put_at(shop)


@each("program at postgres")
def test_a_program_for_postgres_runs_and_puts_its_message(block: Block, tmp_path: Path, postgres_database: str) -> None:
    prepare(postgres_database)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(ORDERS)
    run(f"URL = {postgres_database!r}\n{block.code}", tmp_path)
    assert put_at(postgres_database) == keys_in(block.code)


@each("program at mongo")
def test_a_program_for_mongo_runs_and_puts_its_message(block: Block, tmp_path: Path, mongo_database: str) -> None:
    prepare(mongo_database)
    run(f"URL = {mongo_database!r}\n{block.code}", tmp_path)
    assert put_at(mongo_database) == keys_in(block.code)
