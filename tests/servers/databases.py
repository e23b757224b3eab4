"""Fresh databases, one per test."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.servers.mariadb import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def fresh_database(url: str) -> Iterator[str]:
    """A new, empty UTF8 database on the server at `url`; dropped afterwards, whoever is still connected."""
    import psycopg

    name = f"test_{os.getpid()}_{secrets.token_hex(5)}"
    with psycopg.connect(url, autocommit=True) as admin:
        # Nobody can be connected to template0, so that many may copy it at once.
        admin.execute(f"create database {name} template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'")
    try:
        yield in_database(url, name)
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            # FORCE does not end the reader of a slot; without a reader the slot goes with its database.
            admin.execute(
                "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots"
                " where database = %s and active_pid is not null",
                [name],
            )
            admin.execute(f"drop database if exists {name} with (force)")


def in_database(url: str, name: str) -> str:
    """The URL of the database `name` on the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


@contextmanager
def fresh_mariadb_database(url: str) -> Iterator[str]:
    """A new, empty database on the MariaDB or MySQL at `url`; dropped afterwards, whoever is still connected."""
    name = f"test_{os.getpid()}_{secrets.token_hex(5)}"
    _run(url, f"create database {name}")
    try:
        yield in_database(url, name)
    finally:
        for (thread,) in _run(url, f"select id from information_schema.processlist where db = '{name}'"):
            _run(url, f"kill {thread}", passing=True)
        _run(url, f"drop database if exists {name}")


def _run(url: str, sql: str, *, passing: bool = False) -> Sequence[tuple[Any, ...]]:
    """Run one statement; `passing` says that it does not matter when it fails."""
    import pymysql

    with connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        try:
            cursor.execute(sql)
        except pymysql.Error:
            if not passing:
                raise
            return ()
        found: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return found
