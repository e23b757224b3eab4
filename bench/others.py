"""MariaDB and MongoDB servers to measure on: private ones, with the outbox in a fresh database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import start
from tests.servers.databases import fresh_mariadb_database
from tests.servers.mongo import fresh_database
from tests.servers.run import Run

from bench.postgres import Shop
from bench.table import progress
from postroom.stores import open_store


@contextmanager
def mariadb() -> Iterator[Shop]:
    """A new database with the tables in it, gone afterwards together with its server."""
    progress("starting MariaDB")
    run = Run.create()
    try:
        server = start("mariadb", run=run)
        with fresh_mariadb_database(server.url) as url:
            asyncio.run(_migrate(url))
            yield Shop(url, f"MariaDB {server.version}, no fsync")
    finally:
        run.close()


@contextmanager
def mongo() -> Iterator[Shop]:
    """A new database with the collections in it, on a replica set of one."""
    progress("starting MongoDB")
    run = Run.create()
    try:
        server = start("mongo", run=run)
        with fresh_database(server.url) as url:
            asyncio.run(_migrate(url))
            yield Shop(url, f"MongoDB {server.version}")
    finally:
        run.close()


async def _migrate(url: str) -> None:
    async with open_store(url) as store:
        await store.schema.migrate()
