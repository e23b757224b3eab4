"""Databases for the tests of handles: a SQLite file per test, a PostgreSQL and a MariaDB database per module,
emptied each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.handles.databases import Sight, mariadb_database, postgres_database, sqlite_database


@pytest.fixture(autouse=True)
def _django_beside_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests run in an event loop, for the async handles; Django refuses to block one unless told.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture(scope="module")
def shared_postgres(request: pytest.FixtureRequest) -> Iterator[Sight]:
    with postgres_database(request.getfixturevalue("postgres_url")) as sight:
        yield sight


@pytest.fixture(scope="module")
def shared_mariadb(request: pytest.FixtureRequest) -> Iterator[Sight]:
    with mariadb_database(request.getfixturevalue("mariadb_url")) as sight:
        yield sight


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Sight]:
    with sqlite_database(tmp_path) as sight:
        yield sight


@pytest.fixture
def postgres(shared_postgres: Sight) -> Sight:
    shared_postgres.connection.execute("TRUNCATE outbox, picky, orders")
    return shared_postgres


@pytest.fixture
def mariadb(shared_mariadb: Sight) -> Sight:
    for table in ("outbox", "picky", "orders"):
        shared_mariadb.rows(f"TRUNCATE {table}")
    return shared_mariadb
