"""A producer's own connection to its database: an order and its message in one transaction, by the driver a service uses."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

import psycopg
from tests.servers import mariadb

from postroom import Message, Outbox
from postroom.testing.journal import Name


class Till(Protocol):
    """One connection, for one thread."""

    def prepare(self) -> None:
        """Make the table of the business."""

    def shop(self, names: Sequence[Name], *, keep: bool) -> None:
        """An order and a message for each name, in one transaction; committed, or rolled back."""

    def orders(self) -> set[Name]:
        """The business rows that are there: what committed, by the database's own word."""

    def close(self) -> None: ...


def open_till(url: str) -> Till:
    """A connection as a service holds one; patient, since a relay may be stopped with a lock in its hand."""
    kinds: dict[str, Callable[[str], Till]] = {
        "sqlite": SqliteTill,
        "postgresql": PostgresTill,
        "mariadb": MariaDBTill,
        "mongodb": MongoTill,
    }
    return kinds[urlsplit(url).scheme](url)


class SqlTill:
    """By SQL, with BEGIN and COMMIT written out."""

    begin: ClassVar = "BEGIN"
    mark: ClassVar = "%s"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def prepare(self) -> None:
        self.run("CREATE TABLE orders (name VARCHAR(20), number INTEGER)")

    def shop(self, names: Sequence[Name], *, keep: bool) -> None:
        self.run(self.begin)
        for name in names:
            self.run(f"INSERT INTO orders VALUES ({self.mark}, {self.mark})", *name)
            Outbox().put(self._connection, Message("order.paid", key=name.key, data=name.number))
        self.run("COMMIT" if keep else "ROLLBACK")

    def orders(self) -> set[Name]:
        return {Name(*row) for row in self.run("SELECT name, number FROM orders")}

    def close(self) -> None:
        self._connection.close()

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.execute(statement, parameters)
        return list(cursor.fetchall()) if cursor.description else []


class SqliteTill(SqlTill):
    begin = "BEGIN IMMEDIATE"
    mark = "?"

    def __init__(self, url: str) -> None:
        super().__init__(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None))


class MariaDBTill(SqlTill):
    def __init__(self, url: str) -> None:
        super().__init__(mariadb.connect(url, autocommit=True))


class PostgresTill(SqlTill):
    def __init__(self, url: str) -> None:
        super().__init__(psycopg.connect(url, autocommit=True))


class MongoTill:
    """By PyMongo, in a transaction of a session."""

    def __init__(self, url: str) -> None:
        from pymongo import MongoClient

        self._client = MongoClient[dict[str, Any]](url)
        self._orders = self._client.get_default_database()["orders"]

    def prepare(self) -> None:
        self._orders.create_index("name")

    def shop(self, names: Sequence[Name], *, keep: bool) -> None:
        with self._client.start_session() as session, session.start_transaction():
            for name in names:
                self._orders.insert_one({"name": name.key, "number": name.number}, session=session)
                Outbox().put(session, Message("order.paid", key=name.key, data=name.number))
            if not keep:
                session.abort_transaction()

    def orders(self) -> set[Name]:
        return {Name(each["name"], each["number"]) for each in self._orders.find()}

    def close(self) -> None:
        self._client.close()
