"""Whatever is done to them, every store answers as the memory store does.

The memory store computes the line, the waiting keys and the parked ones from the messages each time; the databases keep
books (shelves, holds) to be fast. Hypothesis does random things to both and compares every answer, and the end state.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from datetime import datetime, timedelta
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pymongo
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.servers.mariadb import connect

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Claim, Expired, Published, Retry, Settlement, Unsent, Verdict
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.stores.memory import MemoryStore
from postroom.stores.mongo import MongoStore
from postroom.stores.mysql import MySQLStore
from postroom.stores.postgres import PostgresStore
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts._case import NOON, SECOND, lost

Result = TypeVar("Result")
LEASE = timedelta(seconds=60)
EXAMPLES = int(os.environ.get("POSTROOM_EXAMPLES", "40"))
EVERYTHING = 1000
"""More than there is."""

keys = st.sampled_from(["a", "b", "c", None])
owners = st.sampled_from(["relay-a", "relay-b"])
seconds = st.integers(0, 90)
verdicts: st.SearchStrategy[Verdict] = st.one_of(
    st.just(Published()),
    st.just(Unsent()),
    st.just(Expired()),
    st.builds(Retry, st.integers(0, 40).map(lambda number: number * SECOND), st.just("TIMEOUT"), spent=st.booleans()),
    st.builds(Buried, st.just("REJECTED"), park=st.booleans()),
)
queries = st.one_of(
    st.builds(Query, status=st.sampled_from(["dead", "failed", "pending", None])),
    st.builds(Query, key=st.sampled_from(["a", "b", "c"]), status=st.sampled_from(["dead", "failed", None])),
)


class Agreement(RuleBasedStateMachine):
    """Two stores, the same deeds."""

    lanes = 3

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = MemoryStore(lanes=self.lanes)
        self.real: Store = self.open()
        self.run(self.real.schema.migrate())
        self.now: datetime = NOON
        self.ids = count(1)
        self.epochs: dict[str, dict[int, int]] = {"relay-a": {}, "relay-b": {}}
        self.flying: list[tuple[Claim, Claim]] = []
        self.landed: list[tuple[Claim, Claim]] = []

    def open(self) -> Store:
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.real.close())
        self.loop.close()

    def both(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Do it to both; they must answer the same."""
        expected = self.run(attrgetter(name)(self.model)(*args, **kwargs))
        answer = self.run(attrgetter(name)(self.real)(*args, **kwargs))
        assert answer == expected, f"{name}{args}{kwargs}: {answer} instead of {expected}"
        return answer

    @rule(wanted=st.lists(st.tuples(keys, st.one_of(st.none(), seconds)), min_size=1, max_size=5))
    def put(self, wanted: list[tuple[str | None, int | None]]) -> None:
        messages = [
            Message(
                "order.paid",
                # Without a key the id decides the lane: it must be the same when Hypothesis runs the example again.
                id=UUID(int=next(self.ids)),
                key=key,
                data=1,
                not_before=None if wait is None else self.now + wait * SECOND,
            )
            for key, wait in wanted
        ]
        self.both("outbox.put", messages)

    @rule(by=seconds)
    def wait(self, by: int) -> None:
        self.now += by * SECOND

    @rule(owner=owners, limit=st.integers(1, 3))
    def take(self, owner: str, limit: int) -> None:
        taken = self.both("lanes.take", owner, limit=limit, lease=LEASE, lost=lost, now=self.now)
        self.epochs[owner] |= {lane.lane: lane.epoch for lane in taken}

    @rule(owner=owners)
    def renew(self, owner: str) -> None:
        self.both("lanes.renew", owner, self.epochs[owner], lease=LEASE, now=self.now)

    @rule(owner=owners)
    def release(self, owner: str) -> None:
        self.both("lanes.release", owner, self.epochs[owner])

    @rule(owner=owners, limit=st.sampled_from([1, 2, EVERYTHING]))
    def claim(self, owner: str, limit: int) -> None:
        limit = limit if len(self.waited()) <= 1 else EVERYTHING
        expected = self.run(self.model.outbox.claim(owner, self.epochs[owner], limit=limit, now=self.now))
        claims = self.run(self.real.outbox.claim(owner, self.epochs[owner], limit=limit, now=self.now))
        assert [_plain(claim) for claim in claims] == [_plain(claim) for claim in expected]
        self.flying += zip(expected, claims, strict=True)

    def waited(self) -> set[str | None]:
        """The keys that had to wait. Which of them goes first, where not all have room, is each store's own business."""
        rows = (
            row for row in self.model.outbox._rows.values() if row.tried_at is not None and row.outcome != "published"
        )
        return {row.message.key for row in rows}

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.flying))
        self.flying.remove(pair)
        self.landed.append(pair)
        self._settle(pair, {claimed.seq: data.draw(verdicts) for claimed in pair[0].messages})

    @precondition(lambda self: self.landed)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.landed))
        self._settle(pair, {claimed.seq: Published() for claimed in pair[0].messages})

    def _settle(self, pair: tuple[Claim, Claim], verdicts: dict[int, Verdict]) -> None:
        verdicts = _one_failure_a_key(pair[0], verdicts)
        (expected,) = self.run(self.model.outbox.settle([Settlement(pair[0], verdicts)], now=self.now)).values()
        (answer,) = self.run(self.real.outbox.settle([Settlement(pair[1], verdicts)], now=self.now)).values()
        assert answer == expected

    @rule(query=queries)
    def requeue(self, query: Query) -> None:
        self.both("ops.requeue", query)

    @rule(query=queries)
    def discard(self, query: Query) -> None:
        self.both("ops.discard", query, now=self.now)

    @rule(owner=owners, data=st.data())
    def claim_in_doubt(self, owner: str, data: st.DataObject) -> None:
        lanes = self.epochs[owner]
        doubtful = data.draw(st.sets(st.sampled_from(sorted(lanes)))) if lanes else ()
        both = [
            self.run(store.outbox.claim(owner, lanes, limit=EVERYTHING, doubtful=doubtful, now=self.now))
            for store in (self.model, self.real)
        ]
        expected, claims = both
        assert [_plain(claim) for claim in claims] == [_plain(claim) for claim in expected]
        self.flying += zip(expected, claims, strict=True)

    @invariant()
    def every_message_is_in_the_same_state(self) -> None:
        expected = [_state(record) for record in self.run(self.model.ops.find(Query()))]
        assert [_state(record) for record in self.run(self.real.ops.find(Query()))] == expected


def _plain(claim: Claim) -> tuple[object, ...]:
    messages = [(claimed.seq, claimed.attempts, claimed.message.id) for claimed in claim.messages]
    return claim.lane, claim.epoch, claim.owner, claim.lost, messages


def _state(record: Any) -> tuple[object, ...]:
    return (
        record.seq,
        record.status,
        record.attempts,
        record.parked,
        record.owner,
        record.last_error_code,
        record.settled_at,
    )


def _one_failure_a_key(claim: Claim, verdicts: dict[int, Verdict]) -> dict[int, Verdict]:
    """As a relay does it (R17): after a message of a key that was not sent, the rest of that key is unsent."""
    stopped: set[str] = set()
    kept: dict[int, Verdict] = {}
    for claimed in claim.messages:
        key, verdict = claimed.message.key, verdicts[claimed.seq]
        kept[claimed.seq] = Unsent() if key in stopped else verdict
        if key is not None and not isinstance(verdict, Published | Expired):
            stopped.add(key)
    return kept


def check(machine: type[Agreement]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


def test_sqlite_agrees_with_memory() -> None:
    class SQLite(Agreement):
        def open(self) -> Store:
            self.folder = tempfile.TemporaryDirectory()
            return SQLiteStore(Path(self.folder.name) / "post.db", lanes=self.lanes)

        def teardown(self) -> None:
            super().teardown()
            self.folder.cleanup()

    check(SQLite)


@pytest.mark.timeout(300)
def test_postgres_agrees_with_memory(postgres_database: str) -> None:
    class Postgres(Agreement):
        # PostgreSQL hashes the key in its own way: with one lane, both have the same.
        lanes = 1

        def open(self) -> Store:
            with psycopg.connect(postgres_database, autocommit=True) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
            return PostgresStore(postgres_database, lanes=self.lanes)

    check(Postgres)


@pytest.mark.timeout(300)
def test_mariadb_agrees_with_memory(mariadb_database: str) -> None:
    class MariaDB(Agreement):
        def open(self) -> Store:
            # The name of the database is the last part of its URL.
            name = mariadb_database.rsplit("/", 1)[1]
            with connect(mariadb_database, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {name}")
                cursor.execute(f"CREATE DATABASE {name}")
            return MySQLStore(mariadb_database, lanes=self.lanes)

    check(MariaDB)


def test_mongo_agrees_with_memory(mongo_database: str) -> None:
    class Mongo(Agreement):
        def open(self) -> Store:
            with pymongo.MongoClient[dict[str, Any]](mongo_database) as client:
                client.drop_database(client.get_default_database())
            return MongoStore(mongo_database, lanes=self.lanes)

    check(Mongo)
