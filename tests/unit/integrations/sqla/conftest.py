"""A database of each kind, as SQLAlchemy reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.unit.stores.homes import Home, MariaDBHome, PostgresHome, SQLiteHome

DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
NAMES = {"sqlite": "sqlite", "postgres": "postgresql", "mysql": "mysql"}


def engine_of(home: Home, driver: str | None = None) -> sa.Engine:
    """An engine on this database."""
    _, _, rest = home.url.partition("://")
    return sa.create_engine(f"{driver or DRIVERS[home.dialect]}://{rest}")


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """One after the other, with nothing in it."""
    match request.param:
        case "sqlite":
            return SQLiteHome(tmp_path / "post.db")
        case "postgres":
            return PostgresHome(request.getfixturevalue("postgres_database"))
    return MariaDBHome(request.getfixturevalue("mariadb_database"))


@pytest.fixture
def engine(home: Home) -> Iterator[sa.Engine]:
    """SQLAlchemy's way to it."""
    engine = engine_of(home)
    yield engine
    engine.dispose()
