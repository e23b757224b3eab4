"""A database with nothing in it, and how to look into it behind the store's back."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
from pymysql.constants.CLIENT import MULTI_STATEMENTS
from tests.servers.mariadb import connect

from postroom.config.values import TableNames
from postroom.contracts.store import Store
from postroom.stores import open_store
from postroom.stores.mysql import MySQLStore
from postroom.stores.postgres import PostgresStore
from postroom.stores.sqlite import SQLiteStore


class Home(Protocol):
    """A database of one dialect, as a test holds it."""

    dialect: str
    url: str

    def open(self, *, tables: TableNames | None = None, lanes: int | None = None) -> Store:
        """A store on it, not migrated."""

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement by a connection of its own, and commit. Parameters are written `?`."""

    def script(self, statements: str) -> None:
        """Run many at once."""


class SQLiteHome:
    """A file."""

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, f"sqlite:///{path}"

    def open(self, *, tables: TableNames | None = None, lanes: int | None = None) -> Store:
        return SQLiteStore(self.path, tables=tables, lanes=lanes)

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()

    def script(self, statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(statements)


class PostgresHome:
    """A database of its own on the run's server."""

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, *, tables: TableNames | None = None, lanes: int | None = None) -> Store:
        return PostgresStore(self.url, tables=tables, lanes=lanes)

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement.replace("?", "%s").encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def script(self, statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(statements.encode())


class MariaDBHome:
    """A database of its own on the run's server. Its connections read SQL as the others do, but for one word."""

    dialect = "mysql"

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, *, tables: TableNames | None = None, lanes: int | None = None) -> Store:
        return MySQLStore(self.url, tables=tables, lanes=lanes)

    def connect(self, flags: int = 0) -> pymysql.Connection[Any]:
        """As a person who knows the standard sets it up."""
        mode = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES"
        return connect(self.url, autocommit=True, sql_mode=mode, client_flag=flags)

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                with_key_quoted(statement.replace("?", "%s") if parameters else statement), parameters or None
            )
            return list(cursor.fetchall())

    def script(self, statements: str) -> None:
        with self.connect(MULTI_STATEMENTS) as connection, connection.cursor() as cursor:
            cursor.execute(with_key_quoted(statements))
            while cursor.nextset():
                pass


def with_key_quoted(sql: str) -> str:
    """KEY is a word of MariaDB's own, and a column of ours. What stands in quotes is left as it is."""
    return re.sub(
        r"""'(?:[^']|'')*'|`[^`]*`|"[^"]*"|\bkey\b""", lambda found: "`key`" if found[0] == "key" else found[0], sql
    )


def columns(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The first of each row."""
    return [row[0] for row in rows]


async def drop_tables(url: str, tables: TableNames) -> None:
    """Drop the tables of these names."""
    async with open_store(url, tables=tables) as store:
        await store.schema.drop()
