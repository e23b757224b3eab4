"""The databases that every scenario is played on."""

from __future__ import annotations

from pathlib import Path

import pytest

DATABASES = ("sqlite", "postgres", "mariadb", "mongo")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with nothing in it, of each kind in turn."""
    return url_of(request.param, request, tmp_path)


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of a new database of this kind."""
    match kind:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{folder / 'post.db'}"
        case "mongo_standalone":
            return f"{request.getfixturevalue('mongo_standalone_database')}?postroom_transactions=off"
        case _:
            return str(request.getfixturevalue(f"{kind}_database"))
