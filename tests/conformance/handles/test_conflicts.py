"""`BusinessKey` knows the violation of its own constraint through every driver, and takes no other error for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from tests.conformance.handles.databases import Sight
from tests.conformance.handles.held import ON_MARIADB, ON_POSTGRES, ON_SQLITE, Held

from postroom.inbox import BusinessKey

TABLES = (
    "CREATE TABLE customers (id integer PRIMARY KEY)",
    (
        "CREATE TABLE charges (id integer PRIMARY KEY, charges_order varchar(99) NOT NULL,"
        " customer_id integer, CONSTRAINT charges_order_customer FOREIGN KEY (customer_id) REFERENCES customers (id))"
    ),
    "CREATE UNIQUE INDEX charges_order ON charges (charges_order)",
    "CREATE TABLE more_charges (charges_order varchar(99) NOT NULL, part integer NOT NULL)",
    "CREATE UNIQUE INDEX more_charges_order ON more_charges (charges_order)",
    "CREATE UNIQUE INDEX charges_order_part ON more_charges (part)",
    "INSERT INTO charges (id, charges_order) VALUES (1, 'order-7')",
    "INSERT INTO more_charges (charges_order, part) VALUES ('order-7', 1)",
)
KNOWN = "INSERT INTO charges (id, charges_order) VALUES (2, 'order-7')"
OTHERS = {
    "NOT NULL on the same column": "INSERT INTO charges (id, charges_order) VALUES (2, NULL)",
    "a foreign key with a longer name": "INSERT INTO charges (id, charges_order, customer_id) VALUES (2, 'order-8', 9)",
    "the primary key of the same table": "INSERT INTO charges (id, charges_order) VALUES (1, 'order-8')",
    "a UNIQUE of another table, whose name ends with ours": "INSERT INTO more_charges VALUES ('order-7', 2)",
    "a UNIQUE of another table, whose name begins with ours": "INSERT INTO more_charges VALUES ('order-8', 1)",
    "a value that looks like the name": "INSERT INTO more_charges VALUES ('for key ''charges_order''', 1)",
    "a table that is not there": "INSERT INTO charges_order VALUES (1)",
}


@pytest.fixture(
    params=[
        # One that is in a transaction from the start cannot turn foreign keys on.
        *((kind, "sqlite", opened) for kind, opened in ON_SQLITE.items() if "by hand" not in kind),
        *((kind, "postgres", opened) for kind, opened in ON_POSTGRES.items()),
        *((kind, "mariadb", opened) for kind, opened in ON_MARIADB.items()),
    ],
    ids=lambda param: param[0],
)
async def held(request: pytest.FixtureRequest) -> AsyncIterator[Held]:
    """A handle on a database with the tables."""
    _, database, opened = request.param
    sight: Sight = request.getfixturevalue(database)
    run = sight.rows if database == "mariadb" else sight.connection.execute
    for table in ("more_charges", "charges", "customers"):
        run(f"DROP TABLE IF EXISTS {table}")
    for statement in TABLES:
        run(statement)
    async with opened(sight.url) as held:
        if database == "sqlite":
            await held.run("PRAGMA foreign_keys = ON")
            await held.rollback()
        yield held


async def error_of(held: Held, statement: str) -> BaseException:
    """What the handle raises for it, in a transaction that is rolled back."""
    await held.begin()
    try:
        await held.run(statement)
    except Exception as exc:
        return exc
    finally:
        await held.rollback()
    pytest.fail(f"{statement} was accepted")


def guard_of(request: pytest.FixtureRequest) -> BusinessKey:
    database = request.node.callspec.params["held"][1]
    return BusinessKey("charges.charges_order" if database == "sqlite" else "charges_order")


async def test_the_violation_of_the_constraint_is_known(held: Held, request: pytest.FixtureRequest) -> None:
    assert guard_of(request).is_known(await error_of(held, KNOWN))


async def test_no_other_error_is_taken_for_it(held: Held, request: pytest.FixtureRequest) -> None:
    guard = guard_of(request)
    taken = [what for what, statement in OTHERS.items() if guard.is_known(await error_of(held, statement))]
    assert taken == []


# ── MongoDB ──


@pytest.fixture
def books(mongo_database: str) -> Iterator[Any]:
    with MongoClient[dict[str, Any]](mongo_database) as client:
        database = client.get_default_database()
        for name in ("charges", "recharges"):
            database[name].create_index([("order", 1)], unique=True)
            database[name].create_index([("order", 1), ("part", 1)], unique=True)
            database[name].insert_one({"_id": 1, "order": "7", "part": 1})
        yield database


def refusal(work: Any) -> BaseException:
    with pytest.raises(PyMongoError) as caught:
        work()
    return caught.value


def test_on_mongodb_the_collection_and_the_index_tell(books: Any) -> None:
    guard = BusinessKey("charges.order_1")
    known = refusal(lambda: books.charges.insert_one({"order": "7", "part": 2}))
    many = refusal(lambda: books.charges.insert_many([{"order": "7", "part": 3}, {"order": "8", "part": 1}]))
    assert guard.is_known(known)
    assert guard.is_known(many)
    others = [
        lambda: books.charges.insert_one({"_id": 1, "order": "9"}),
        lambda: books.recharges.insert_one({"order": "7", "part": 2}),
        lambda: books.charges.insert_many([{"order": "7"}, {"_id": 1, "order": "8"}], ordered=False),
        lambda: books.recharges.insert_one({"_id": 1, "order": "collection: x.charges index: order_1 dup key: "}),
        lambda: books.charges.update_one({"_id": 1}, {"$nonsense": 1}),
    ]
    assert [guard.is_known(refusal(other)) for other in others] == [False] * len(others)
    assert not BusinessKey("charges.order_1_part_1").is_known(known)
