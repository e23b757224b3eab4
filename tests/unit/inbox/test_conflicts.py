"""Which error is the violation of one constraint: texts of servers and drivers that no test here can start."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import pytest

from postroom.errors import ConfigError
from postroom.inbox import BusinessKey, Inbox, RejectMessage, RetryLater
from postroom.inbox.conflicts import is_conflict


class MySQLError(Exception):
    """As mysqlclient raises it."""


MySQLError.__module__ = "MySQLdb"


class PostgresError(Exception):
    """As asyncpg raises it: the facts stand on the error itself."""

    def __init__(self, sqlstate: str, constraint_name: str | None) -> None:
        super().__init__(f'violates "{constraint_name}"')
        self.sqlstate, self.constraint_name = sqlstate, constraint_name


@pytest.mark.parametrize(
    ("error", "constraint", "expected"),
    [
        (MySQLError(1062, "Duplicate entry '7' for key 'charges.order_id'"), "charges.order_id", True),
        (MySQLError(1062, "Duplicate entry '7' for key 'order_id'"), "order_id", True),
        # MySQL says which table: the same name is in others too.
        (MySQLError(1062, "Duplicate entry '7' for key 'refunds.order_id'"), "order_id", False),
        (MySQLError(1062, "Duplicate entry 'x' for key 'order_id'' for key 'other'"), "order_id", False),
        (MySQLError(1062, "Duplicate entry '7' for key 'charges.PRIMARY'"), "charges.PRIMARY", True),
        (MySQLError(1062, "Duplicate entry '7' for key 'PRIMARY'"), "PRIMARY", False),
        (MySQLError(1048, "Column 'x' cannot be null for key 'order_id'"), "order_id", False),
        (MySQLError(1062), "order_id", False),
        (PostgresError("23505", "charges_key"), "charges_key", True),
        (PostgresError("23502", "charges_key"), "charges_key", False),
        (PostgresError("23505", None), "charges_key", False),
        (ValueError("UNIQUE constraint failed: charges.order_id"), "charges.order_id", False),
    ],
)
def test_the_code_and_the_exact_name_decide(error: Exception, constraint: str, expected: bool) -> None:
    assert is_conflict(error, constraint) is expected


def sqlite_error(*statements: str) -> sqlite3.Error:
    with pytest.raises(sqlite3.Error) as caught:
        sqlite3.connect(":memory:").executescript(";".join(statements))
    return caught.value


def test_on_sqlite_all_columns_of_the_constraint_are_named() -> None:
    table = "CREATE TABLE charges (a, b, UNIQUE (a, b), UNIQUE (b)); INSERT INTO charges VALUES (1, 1)"
    both = sqlite_error(table.replace(", UNIQUE (b)", ""), "INSERT INTO charges VALUES (1, 1)")
    assert is_conflict(both, "charges.a, charges.b")
    assert is_conflict(both, "charges.a,charges.b")
    assert not is_conflict(both, "charges.a")
    assert not is_conflict(both, "charges.b")


def test_on_sqlite_a_trigger_that_says_the_same_is_not_the_constraint() -> None:
    said = "SELECT RAISE(ABORT, 'UNIQUE constraint failed: charges.a')"
    error = sqlite_error(
        "CREATE TABLE charges (a)",
        f"CREATE TRIGGER refuse BEFORE INSERT ON charges BEGIN {said}; END",
        "INSERT INTO charges VALUES (1)",
    )
    assert str(error) == "UNIQUE constraint failed: charges.a"
    assert not is_conflict(error, "charges.a")


def test_an_error_that_is_its_own_cause_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert not is_conflict(one, "charges_key")


@pytest.mark.parametrize("verdict", [RetryLater("later"), RejectMessage("never")])
def test_what_the_handler_decided_itself_stays_its_verdict(verdict: Exception) -> None:
    verdict.__cause__ = PostgresError("23505", "charges_key")
    assert not BusinessKey("charges_key").is_known(verdict)


@pytest.mark.parametrize("name", ["PRIMARY", "_id_"])
def test_a_name_that_every_table_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="write the table too"):
        Inbox("billing", guard=BusinessKey(name), retention=timedelta(days=30))
