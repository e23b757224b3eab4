"""One promise, whatever handle people hold: the message commits with their data, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conformance.handles.databases import PICKY, Sight
from tests.conformance.handles.held import AUTOCOMMIT, ON_MARIADB, ON_POSTGRES, ON_SQLITE, Held, done

from postroom.config.values import TableNames
from postroom.errors import DuplicateMessage, InvalidMessage, NotInTransaction, PostroomError, SchemaMismatch
from postroom.message import Message
from postroom.outbox.outbox import Outbox

ORDER = "INSERT INTO orders (id) VALUES (1)"
PAID = Message("order.paid", key="o-1", data={"amount": 12})
BODIES = {
    "text": "Grüße, 世界 🌍 \u2028 %s :name $1".encode(),
    "binary": bytes(range(256)),
    "cut": "é".encode()[:1],
    "quotes": b"""{"a": "it's \\"quoted\\" \\\\ \\u0000"}""",
    "empty": b"",
    "none": None,
}
outbox = Outbox()


@pytest.fixture
def others(request: pytest.FixtureRequest) -> Sight:
    """The database that the handle of this case is on."""
    name = request.node.callspec.params["name"]
    if name in ON_MARIADB or "mysql" in name or "asyncmy" in name:
        database = "mariadb"
    else:
        database = "sqlite" if name in ON_SQLITE or "sqlite" in name else "postgres"
    return request.getfixturevalue(database)  # type: ignore[no-any-return]  # all are


@pytest.fixture
async def held(others: Sight, name: str) -> AsyncIterator[Held]:
    async with (ON_SQLITE | ON_POSTGRES | ON_MARIADB)[name](others.url) as held:
        yield held
        await held.rollback()


@pytest.mark.parametrize("name", [*ON_SQLITE, *ON_POSTGRES, *ON_MARIADB])
class TestEveryHandle:
    @pytest.mark.requirement("A1", "D2", "D8")
    async def test_commit_makes_data_and_message_appear_together(self, held: Held, others: Sight) -> None:
        await held.begin()
        await held.run(ORDER)
        await done(outbox.put(held.thing, PAID))
        assert others.counts() == (0, 0)
        await held.commit()
        assert others.counts() == (1, 1)

    @pytest.mark.requirement("A1", "D8")
    async def test_a_rolled_back_message_never_existed(self, held: Held, others: Sight) -> None:
        await held.begin()
        await held.run(ORDER)
        await done(outbox.put(held.thing, PAID))
        await held.rollback()
        assert others.counts() == (0, 0)

    async def test_put_alone_in_a_transaction_waits_for_the_commit_too(self, held: Held, others: Sight) -> None:
        await held.begin()
        await done(outbox.put(held.thing, PAID))
        assert others.counts() == (0, 0)
        await held.commit()
        assert others.counts() == (0, 1)

    async def test_a_savepoint_rolled_back_takes_only_its_own_message(self, held: Held, others: Sight) -> None:
        await held.begin()
        await held.run(ORDER)
        await done(outbox.put(held.thing, Message("kept")))
        await held.run("SAVEPOINT here")
        await done(outbox.put(held.thing, Message("gone")))
        await held.run("ROLLBACK TO SAVEPOINT here")
        await held.commit()
        assert others.rows("SELECT type FROM outbox") == [("kept",)]

    async def test_many_keep_their_order(self, held: Held, others: Sight) -> None:
        types = [f"n.{number}" for number in range(2_500)]
        await held.begin()
        await done(outbox.put_many(held.thing, (Message(type) for type in types)))
        await held.commit()
        assert [type for (type,) in others.rows("SELECT type FROM outbox ORDER BY seq")] == types

    async def test_none_at_all_writes_nothing(self, held: Held, others: Sight) -> None:
        await held.begin()
        await held.run(ORDER)
        await done(outbox.put_many(held.thing, []))
        await held.commit()
        assert others.counts() == (1, 0)

    async def test_one_wrong_message_keeps_all_from_being_written(self, held: Held, others: Sight) -> None:
        await held.begin()
        await held.run(ORDER)
        with pytest.raises(InvalidMessage):
            await done(outbox.put_many(held.thing, [PAID, Message("")]))
        await held.commit()
        assert others.counts() == (1, 0)

    @pytest.mark.parametrize("of_many", [False, True])
    async def test_a_known_id_is_a_duplicate(self, held: Held, others: Sight, of_many: bool) -> None:
        await held.begin()
        await done(outbox.put(held.thing, PAID))
        again = [Message("order.new"), PAID] if of_many else [PAID]
        with pytest.raises(DuplicateMessage, match="is already in the outbox"):
            await done(outbox.put_many(held.thing, again))

    async def test_many_of_which_one_is_known_write_nothing(self, held: Held, others: Sight) -> None:
        known = Message("known", idempotency_key="pay-1")
        await held.begin()
        await done(outbox.put(held.thing, known))
        await held.commit()
        await held.begin()
        await held.run(ORDER)
        many = [Message(f"n.{number}", data="x" * 600) for number in range(1_500)]  # more than one round trip
        with pytest.raises(DuplicateMessage):
            await done(outbox.put_many(held.thing, [*many, known]))
        with contextlib.suppress(Exception):  # PostgreSQL wants a rollback after any error
            await held.commit()
        await held.rollback()
        orders, messages = others.counts()
        assert messages == 1
        assert orders == (0 if "postgresql" in others.url else 1)  # and elsewhere the transaction goes on

    @pytest.mark.requirement("B1")
    async def test_a_known_idempotency_key_is_a_duplicate(self, held: Held, others: Sight) -> None:
        await held.begin()
        await done(outbox.put(held.thing, Message("order.paid", idempotency_key="pay-1")))
        with pytest.raises(DuplicateMessage, match="idempotency key pay-1 is already"):
            await done(outbox.put(held.thing, Message("order.paid", idempotency_key="pay-1")))

    async def test_a_missing_table_says_what_to_run(self, held: Held, others: Sight) -> None:
        await held.begin()
        with pytest.raises(SchemaMismatch, match=r'no table "absent" .* run postroom init --store URL'):
            await done(Outbox(tables=TableNames(prefix="absent")).put(held.thing, PAID))

    async def test_a_table_of_somebody_else_is_told_apart(self, held: Held, others: Sight) -> None:
        await held.begin()
        with pytest.raises(SchemaMismatch, match=r'table "orders" has other columns .* another prefix'):
            await done(Outbox(tables=TableNames(prefix="orders")).put(held.thing, PAID))

    async def test_any_other_error_stays_the_drivers(self, held: Held, others: Sight) -> None:
        await held.begin()
        await done(Outbox(tables=PICKY).put(held.thing, Message("order.paid")))
        with pytest.raises(Exception, match=r"(?i)unique|for key 'picky_type'") as raised:
            await done(Outbox(tables=PICKY).put(held.thing, Message("order.paid")))
        assert not isinstance(raised.value, PostroomError)

    async def test_bodies_come_back_byte_for_byte(self, held: Held, others: Sight) -> None:
        await held.begin()
        await done(outbox.put_many(held.thing, [Message(name, body=body) for name, body in BODIES.items()]))
        await held.commit()
        rows = others.rows("SELECT type, payload, body FROM outbox")
        assert {type: body if text is None else text.encode() for type, text, body in rows} == BODIES

    @pytest.mark.requirement("A7")
    async def test_every_field_is_written(self, held: Held, others: Sight) -> None:
        texts = {"topic": "orders", "aggregate": "order", "correlation_id": "c", "causation_id": "b"}
        whole = PAID.replace(headers={"tenant": "Zoë"}, traceparent=f"00-{'a' * 32}-{'b' * 16}-01", **texts)
        await held.begin()
        await done(outbox.put(held.thing, whole))
        await held.commit()
        columns = ("id", "type", "key", *texts, "content_type", "headers", "traceparent")
        assert [str(value) for value in others.rows(f"SELECT {', '.join(columns)} FROM outbox")[0]] == [
            *(str(whole.id), "order.paid", "o-1", *texts.values(), "application/json", '{"tenant": "Zoë"}'),
            whole.traceparent,
        ]


SESSIONS = [name for name in (*ON_SQLITE, *ON_POSTGRES, *ON_MARIADB) if "ession on" in name]
"""These begin by themselves, at the first thing that is done with them."""


@pytest.mark.parametrize("name", [name for name in (*ON_SQLITE, *ON_POSTGRES, *ON_MARIADB) if name not in SESSIONS])
class TestEveryHandleButSessions:
    async def test_outside_a_transaction_put_is_refused_with_the_remedy(self, held: Held, others: Sight) -> None:
        with pytest.raises(NotInTransaction) as refused:
            await done(outbox.put(held.thing, PAID))
        assert held.remedy in str(refused.value)
        assert others.counts() == (0, 0)

    async def test_after_a_commit_put_is_outside_again(self, held: Held, others: Sight) -> None:
        await held.begin()
        await held.run(ORDER)
        await held.commit()
        with pytest.raises(NotInTransaction):
            await done(outbox.put(held.thing, PAID))
        assert others.counts() == (1, 0)

    async def test_none_at_all_is_refused_outside_a_transaction(self, held: Held, others: Sight) -> None:
        with pytest.raises(NotInTransaction):
            await done(outbox.put_many(held.thing, []))


@pytest.mark.parametrize("name", SESSIONS)
class TestEverySession:
    async def test_put_begins_as_any_first_statement_does(self, held: Held, others: Sight) -> None:
        await done(outbox.put(held.thing, PAID))
        await held.run(ORDER)
        assert others.counts() == (0, 0)
        await held.commit()
        assert others.counts() == (1, 1)

    async def test_what_put_began_is_rolled_back(self, held: Held, others: Sight) -> None:
        await held.run(ORDER)
        await held.commit()
        await done(outbox.put_many(held.thing, [PAID, Message("order.sent")]))
        await held.rollback()
        assert others.counts() == (1, 0)

    async def test_a_session_that_begins_nothing_by_itself_is_refused_with_the_remedy(
        self, held: Held, others: Sight
    ) -> None:
        session = held.thing.registry() if hasattr(held.thing, "registry") else held.thing
        getattr(session, "sync_session", session).autobegin = False
        with pytest.raises(NotInTransaction) as refused:
            await done(outbox.put(held.thing, PAID))
        assert held.remedy in str(refused.value)
        assert others.counts() == (0, 0)


@pytest.mark.parametrize("name", AUTOCOMMIT)
async def test_an_engine_that_commits_each_statement_is_refused(name: str, others: Sight) -> None:
    async with AUTOCOMMIT[name](others.url) as held:
        await held.begin()
        assert held.thing.in_transaction()
        with pytest.raises(NotInTransaction, match="AUTOCOMMIT"):
            await done(outbox.put(held.thing, PAID))
        await held.rollback()
    assert others.counts() == (0, 0)


LATE = ("aiosqlite", "psycopg async", "asyncpg", "asyncmy")
ON_SQLALCHEMY = ("AsyncSession on psycopg", "AsyncConnection on asyncpg")
"""These do not even commit without it: see `test_forgotten_await.py`."""


@pytest.mark.parametrize("name", LATE)
async def test_a_put_awaited_after_the_commit_is_refused(held: Held, others: Sight) -> None:
    await held.begin()
    await held.run(ORDER)
    late: Any = outbox.put(held.thing, PAID)
    await held.commit()
    with pytest.raises(NotInTransaction):
        await late
    assert others.counts() == (1, 0)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", ON_SQLALCHEMY)
async def test_a_put_awaited_after_its_transaction_ended_is_refused(held: Held, others: Sight, again: bool) -> None:
    await held.begin()
    late: Any = outbox.put(held.thing, PAID)
    await held.rollback()
    if again:
        await held.begin()
    with pytest.raises(NotInTransaction):
        await late
    await held.run(ORDER)
    await held.commit()
    assert others.counts() == (1, 0)


@pytest.mark.parametrize("name", ["psycopg", "psycopg async", "psycopg2"])
async def test_a_failed_transaction_is_told_from_none(held: Held, others: Sight) -> None:
    await held.begin()
    with pytest.raises(Exception, match="nowhere"):
        await held.run("SELECT nowhere")
    with pytest.raises(NotInTransaction, match=r"has failed.* roll it back"):
        await done(outbox.put(held.thing, PAID))
