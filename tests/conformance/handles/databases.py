"""A database with Postroom's tables and somebody's own, seen by a connection that is not the one under test."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pymysql.constants.CLIENT import MULTI_STATEMENTS
from tests.servers.databases import fresh_database, fresh_mariadb_database
from tests.servers.mariadb import connect
from tests.unit.stores.homes import with_key_quoted

from postroom.config.values import TableNames
from postroom.stores.sql.files import backquoted, read, rename

PICKY = TableNames(prefix="picky")
"""Tables with one rule more than ours: no two messages of one type."""
OTHERS = "CREATE TABLE orders (id integer PRIMARY KEY); CREATE UNIQUE INDEX picky_type ON picky (type);"


@dataclass
class Sight:
    """What everybody else sees of the database: only what is committed."""

    url: str
    connection: Any

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(sql).fetchall())

    def counts(self) -> tuple[int, int]:
        """How many orders and how many messages there are."""
        ((orders, messages),) = self.rows("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM outbox)")
        return orders, messages


@contextlib.contextmanager
def sqlite_database(folder: Path) -> Iterator[Sight]:
    path = folder / "shop.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN; {_schema('sqlite')} COMMIT;")
        yield Sight(f"sqlite:///{path}", connection)


@contextlib.contextmanager
def postgres_database(server: str) -> Iterator[Sight]:
    with fresh_database(server) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_schema("postgres"))
        yield Sight(url, connection)


@dataclass
class MariaDBSight(Sight):
    """The same by PyMySQL, which has no execute of a connection."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(with_key_quoted(sql))
            return list(cursor.fetchall())


@contextlib.contextmanager
def mariadb_database(server: str) -> Iterator[MariaDBSight]:
    with (
        fresh_mariadb_database(server) as url,
        connect(url, autocommit=True, client_flag=MULTI_STATEMENTS) as connection,
    ):
        with connection.cursor() as cursor:
            cursor.execute(backquoted(_schema("mysql")))
            while cursor.nextset():
                pass
        yield MariaDBSight(url, connection)


def _schema(dialect: str) -> str:
    schema = read(f"postroom.stores.{dialect}", "schema.sql")
    return rename(schema, TableNames()) + rename(schema, PICKY) + OTHERS
