"""A database that cannot be written any more, until it can; and whether somebody holds it now. For each kind of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
from tests.servers import mariadb
from tests.servers.databases import in_database


class Outage(Protocol):
    """Takes a database away and gives it back."""

    struck: int
    """How many connections it took away, or locks it holds."""

    def begin(self) -> float:
        """From now on nothing can be written. The answer is 0, so that it can be a receiver's delay."""

    def end(self) -> None: ...

    def is_locked(self) -> bool:
        """Does anybody else have a transaction open?"""


def outage_of(url: str) -> Outage:
    kinds: dict[str, Callable[[str], Outage]] = {
        "sqlite": SqliteOutage,
        "postgresql": PostgresOutage,
        "mariadb": MariaDBOutage,
        "mongodb": MongoOutage,
    }
    return kinds[urlsplit(url).scheme](url)


class SqliteOutage:
    """The file is locked."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///")
        self._lock: sqlite3.Connection | None = None
        self.struck = 0

    def begin(self) -> float:
        self._lock = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
        self._lock.execute("BEGIN IMMEDIATE")
        self.struck = 1
        return 0.0

    def end(self) -> None:
        if self._lock is not None:
            self._lock.execute("ROLLBACK")
            self._lock.close()

    def is_locked(self) -> bool:
        with closing(sqlite3.connect(self._path, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False


class PostgresOutage:
    """The server ends every connection to it and takes no new one."""

    def __init__(self, url: str) -> None:
        self._url, self._admin, self._name = url, in_database(url, "postgres"), urlsplit(url).path.lstrip("/")
        self.struck = 0

    def begin(self) -> float:
        terminate = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
        with psycopg.connect(self._admin, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false")
            self.struck = len(admin.execute(terminate, [self._name]).fetchall())
        return 0.0

    def end(self) -> None:
        with psycopg.connect(self._admin, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true")

    def is_locked(self) -> bool:
        query = """SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"""
        with psycopg.connect(self._url, autocommit=True) as connection:
            return connection.execute(query).fetchone() != (0,)


class MariaDBOutage:
    """Every table is locked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock: Any = None
        self.struck = 0

    def begin(self) -> float:
        self._lock = mariadb.connect(self._url, autocommit=True)
        with self._lock.cursor() as cursor:
            cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = database()")
            tables = [f"`{name}` WRITE" for (name,) in cursor.fetchall() if not name.endswith("messages")]
            cursor.execute(f"LOCK TABLES {', '.join(tables)}")
        self.struck = 1
        return 0.0

    def end(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def is_locked(self) -> bool:
        query = """SELECT count(*) FROM information_schema.innodb_trx t
                   JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
                   WHERE p.db = database() AND p.id <> connection_id()
                     AND t.trx_rows_locked + t.trx_rows_modified > 0"""
        with closing(mariadb.connect(self._url, autocommit=True)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return bool(cursor.fetchone() != (0,))


class MongoOutage:
    """A transaction that never ends has written every document: whoever else wants to write one is refused."""

    def __init__(self, url: str) -> None:
        from pymongo import MongoClient

        self._client = MongoClient[dict[str, Any]](url.removesuffix("?postroom_transactions=off"))
        self._session: Any = None
        self.struck = 0

    def begin(self) -> float:
        from pymongo.errors import OperationFailure

        database = self._client.get_default_database()
        names = [name for name in database.list_collection_names() if name.startswith("outbox")]
        while not self.struck:
            self._session = self._client.start_session()
            self._session.start_transaction()
            try:
                for name in names:
                    touched = database[name].update_many({}, {"$set": {"taken_away": True}}, session=self._session)
                    self.struck += touched.modified_count
            except OperationFailure:  # the relay was writing: once more
                self._session.end_session()
                self.struck = 0
        return 0.0

    def end(self) -> None:
        if self._session is not None:
            self._session.abort_transaction()
            self._session.end_session()
        self._client.close()

    def is_locked(self) -> bool:
        """Has anybody else written a document in a transaction that is still open?"""
        from pymongo.errors import OperationFailure

        with self._client:
            database = self._client.get_default_database()
            names = [name for name in database.list_collection_names() if name.startswith("outbox")]
            touch = [{"q": {}, "u": {"$set": {"touched": True}}, "multi": True}]
            try:
                for name in names:
                    database.command({"update": name, "updates": touch, "maxTimeMS": 300})
            except OperationFailure:
                return True
            return False
