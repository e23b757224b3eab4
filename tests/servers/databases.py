"""Fresh databases, one per test."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.servers.mariadb import connect

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    import pymysql

    name = f"test_{os.getpid()}_{secrets.token_hex(5)}"
    with connect(url, autocommit=True) as admin, admin.cursor() as cursor:
        cursor.execute(f"create database {name}")
    try:
        yield in_database(url, name)
    finally:
        with connect(url, autocommit=True) as admin, admin.cursor() as cursor:
            cursor.execute("select id from information_schema.processlist where db = %s", [name])
            for (thread,) in cursor.fetchall():
                with suppress(pymysql.Error):  # it has ended by itself
                    cursor.execute(f"kill {thread}")
            cursor.execute(f"drop database if exists {name}")
