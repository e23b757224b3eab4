"""What a store's URL may say, and under which name its server lists us."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from tests.servers.mariadb import connect

from postroom.config.values import Settings
from postroom.contracts.ops import Query
from postroom.relay import relay_from
from postroom.stores import open_store, open_waker
from postroom.stores.mysql.url import MySQLUrl
from postroom.stores.sqlite.url import path_of
from postroom.testing.contracts._case import a_message
from postroom.urls import redact, without_driver


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("postgresql+asyncpg://app:s%40x@db/shop", "postgresql://app:s%40x@db/shop"),
        ("postgresql+asyncpg://app@db/shop?ssl=require", "postgresql://app@db/shop?sslmode=require"),
        ("postgresql+psycopg2://app@db/shop?sslmode=require", "postgresql://app@db/shop?sslmode=require"),
        ("mysql+pymysql://app@db/shop?charset=utf8mb4&ssl=true", "mysql://app@db/shop?ssl=true"),
        ("mariadb+asyncmy://app@db/shop", "mariadb://app@db/shop"),
        ("sqlite+aiosqlite:///shop.db", "sqlite:///shop.db"),
        ("sqlite:///a+b://c.db", "sqlite:///a+b://c.db"),
        ("mongodb+srv://db/shop?charset=x", "mongodb+srv://db/shop?charset=x"),
    ],
)
def test_a_driver_in_a_url_is_left_out(url: str, plain: str) -> None:
    assert without_driver(url) == plain


def test_a_password_behind_a_driver_is_not_shown() -> None:
    assert "secret" not in redact("postgresql+asyncpg://app:secret@db/shop")
    assert MySQLUrl.of(without_driver("mysql+aiomysql://app:p@db/shop?charset=utf8")).parameters["database"] == "shop"


async def test_a_store_and_an_inbox_are_opened_by_a_url_with_a_driver(tmp_path: Path, postgres_database: str) -> None:
    urls = (
        f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}",
        postgres_database.replace("postgresql://", "postgresql+asyncpg://"),
    )
    for url in urls:
        async with open_store(url) as store:
            await store.schema.migrate()
            await store.outbox.put([a_message()])
            assert len(await store.ops.find(Query())) == 1
            await store.schema.check()
            assert await store.inbox.counts() == {}
    assert path_of(urls[0]) == tmp_path / "shop.db"
    waker = open_waker(urls[1])
    waker.wake()
    waker.close()


async def test_postgres_lists_a_relay_by_its_name(postgres_database: str) -> None:
    async with open_store(postgres_database) as store:
        await store.schema.migrate()
    settings = Settings(store=postgres_database, to="null://")
    async with relay_from(settings, name="billing-1"):
        assert _names_in_postgres(postgres_database) == {"postroom:billing-1"}
    url = f"{postgres_database}?application_name=mine"
    async with open_store(url, name="billing-1") as store:
        await store.lanes.all()
        assert _names_in_postgres(postgres_database) == {"mine"}


def _names_in_postgres(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return {name for (name,) in rows}


async def test_mariadb_takes_a_relays_name(mariadb_database: str) -> None:
    async with open_store(mariadb_database, name="billing-1") as store:
        await store.schema.migrate()
        with closing(connect(mariadb_database)) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW VARIABLES LIKE 'performance_schema'")
            if cursor.fetchall()[0][1] != "ON":
                return  # it keeps no attributes; that it connects with one is all that can be seen
            cursor.execute(
                "SELECT attr_value FROM performance_schema.session_connect_attrs WHERE attr_name = 'program_name'"
            )
            assert ("postroom:billing-1",) in cursor.fetchall()


async def test_mongodb_lists_a_relay_by_its_name(mongo_database: str) -> None:
    async with open_store(mongo_database, name="billing-1") as store:
        await store.schema.migrate()
        with MongoClient[dict[str, Any]](mongo_database) as client:
            found = client.admin.aggregate([{"$currentOp": {"allUsers": True, "idleConnections": True}}])
            assert "postroom:billing-1" in {each.get("appName") for each in found}
