"""Importing Postroom loads Postroom, and no driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

DRIVERS = (
    "psycopg",
    "psycopg2",
    "asyncpg",
    "sqlalchemy",
    "django",
    "sqlite3",
    "aiosqlite",
    "click",
    "rich",
    "opentelemetry",
)


@pytest.mark.parametrize("module", ["postroom", "postroom.outbox.outbox", "postroom.handles"])
def test_an_import_loads_no_driver(module: str) -> None:
    loaded = _python(f"import sys, {module}; print(*sys.modules)").split()
    assert module in loaded
    assert not set(DRIVERS) & set(loaded)


@pytest.mark.parametrize("module", ["sqlite", "psycopg", "asyncpg", "sqlalchemy", "django"])
def test_a_handle_loads_no_driver_either(module: str) -> None:
    loaded = _python(f"import sys, postroom.handles.{module}; print(*sys.modules)").split()
    assert not set(DRIVERS) & set(loaded)


def test_put_on_sqlite_loads_no_other_driver() -> None:
    loaded = _python(
        """if True:
        import sqlite3, sys
        from postroom.message import Message
        from postroom.outbox.outbox import Outbox
        connection = sqlite3.connect(":memory:")
        connection.execute("BEGIN")
        try:
            Outbox().put(connection, Message("order.paid"))
        except Exception as exc:
            assert type(exc).__name__ == "SchemaMismatch", exc
        connection.close()
        print(*sys.modules)
        """
    ).split()
    assert set(DRIVERS) & set(loaded) == {"sqlite3"}


def _python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    return run.stdout
