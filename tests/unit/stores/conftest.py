"""All SQL databases, so that one test speaks for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.stores.homes import Home, MariaDBHome, PostgresHome, SQLiteHome


@pytest.fixture
def sqlite_home(tmp_path: Path) -> SQLiteHome:
    return SQLiteHome(tmp_path / "post.db")


@pytest.fixture
def postgres_home(postgres_database: str) -> PostgresHome:
    return PostgresHome(postgres_database)


@pytest.fixture
def mariadb_home(mariadb_database: str) -> MariaDBHome:
    return MariaDBHome(mariadb_database)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def home(request: pytest.FixtureRequest) -> Home:
    """One after the other."""
    found: Home = request.getfixturevalue(f"{request.param}_home")
    return found
