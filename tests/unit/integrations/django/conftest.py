"""The three databases that Django and Postroom share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.integrations.django.projects import Project
from tests.unit.stores.homes import Home, MariaDBHome, PostgresHome, SQLiteHome


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """One after the other."""
    match request.param:
        case "sqlite":
            return SQLiteHome(tmp_path / "shop.db")
        case "postgres":
            return PostgresHome(request.getfixturevalue("postgres_database"))
    return MariaDBHome(request.getfixturevalue("mariadb_database"))


@pytest.fixture
def project(home: Home) -> Project:
    """Migrated, on each of them."""
    made = Project.on(home.url)
    made.migrate()
    return made


@pytest.fixture
def small(tmp_path: Path) -> Project:
    """On a new file of SQLite, not migrated."""
    return Project.on(f"sqlite:///{tmp_path / 'shop.db'}")
