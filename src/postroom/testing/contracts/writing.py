"""Messages written in transactions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from postroom.config.tables import TableNames
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.errors import DuplicateMessage
from postroom.message import uuid7
from postroom.testing.contracts._case import StoreCase, a_message, a_relay, needs

TABLES = TableNames()


class _Changed(Exception):
    """The user's own error."""


async def write(handle: object, *messages: object) -> None:
    await handle.postroom_handle().write(list(messages), TABLES)  # type: ignore[attr-defined]  # every own handle has it


class WritingContract(StoreCase):
    """What `Writing` promises."""

    async def test_a_committed_message_is_there(self, store: Store) -> None:
        message = a_message(key="a")
        async with store.outbox.transaction() as handle:
            await write(handle, message)
        (found,) = await store.ops.find(Query())
        assert found.message.id == message.id
        assert found.status == "pending"

    async def test_a_rolled_back_message_never_existed(self, store: Store) -> None:
        with suppress(_Changed):
            async with store.outbox.transaction() as handle:
                await write(handle, a_message(key="a"))
                raise _Changed
        assert await store.ops.find(Query()) == []
        relay = await a_relay(store)
        assert await relay.seqs() == []

    @needs("all_or_none")
    async def test_many_are_all_or_none(self, store: Store) -> None:
        twice = a_message()
        with pytest.raises(DuplicateMessage):
            await store.outbox.put([a_message(), twice, twice])
        assert await store.ops.find(Query()) == []

    async def test_messages_keep_the_order_they_were_written_in(self, store: Store) -> None:
        messages = [a_message(key="a", data=number) for number in range(25)]
        await store.outbox.put(messages)
        found = await store.ops.find(Query())
        assert [record.message.data for record in found] == list(range(25))
        assert [record.seq for record in found] == sorted(record.seq for record in found)

    async def test_a_known_id_is_refused(self, store: Store) -> None:
        message = a_message()
        await store.outbox.put([message])
        with pytest.raises(DuplicateMessage):
            await store.outbox.put([message.replace(data="other")])
        assert [record.message.data for record in await store.ops.find(Query())] == [message.data]

    async def test_a_known_idempotency_key_is_refused(self, store: Store) -> None:
        await store.outbox.put([a_message(idempotency_key="pay-7")])
        with pytest.raises(DuplicateMessage):
            await store.outbox.put([a_message(idempotency_key="pay-7")])
        assert len(await store.ops.find(Query())) == 1

    @pytest.mark.parametrize(
        "body",
        [None, b"", b"{}", b'"\xc3\xa9\xf0\x9f\x93\xae"', bytes(range(256)), b"\0", b"x" * 200_000],
        ids=["none", "empty", "json", "unicode", "every byte", "NUL", "large"],
    )
    async def test_the_body_comes_back_byte_for_byte(self, store: Store, body: bytes | None) -> None:
        await store.outbox.put([a_message(body=body, content_type="application/octet-stream", key="a")])
        relay = await a_relay(store)
        (claim,) = await relay.claim()
        assert claim.messages[0].message.body == body

    async def test_every_field_comes_back_as_it_was_given(self, store: Store) -> None:
        message = a_message(
            type="order.paid",
            key="klíč-7",
            id=uuid7(),
            body=b"a;b\n1;2\n",
            content_type="text/csv",
            time=datetime(2026, 11, 15, 9, 30, 0, 250_000, tzinfo=UTC),
            aggregate="order",
            topic="orders",
            headers={"x-tenant": "ačme", "X-Quote": 'he said "hi"\\', "tracestate": "a=1"},
            correlation_id="c-1",
            causation_id="c-0",
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            idempotency_key="pay-7",
            expires_at=datetime(2031, 1, 1, tzinfo=UTC),
        )
        await store.outbox.put([message])
        relay = await a_relay(store)
        (claim,) = await relay.claim()
        assert claim.messages[0].message == message
        (found,) = await store.ops.find(Query())
        assert found.message == message
        assert found.digest is not None

    async def test_nothing_is_put_by_an_empty_list(self, store: Store) -> None:
        await store.outbox.put([])
        assert await store.ops.find(Query()) == []

    @needs("concurrent_writers")
    async def test_an_uncommitted_message_is_invisible_and_a_late_one_is_found(self, store: Store) -> None:
        early, late = a_message(key="a", data="early"), a_message(key="b", data="late")
        relay = await a_relay(store)
        async with store.outbox.transaction() as slow:
            await write(slow, early)
            await store.outbox.put([late])
            assert [record.message.data for record in await store.ops.find(Query())] == ["late"]
            claims = await relay.claim()
            assert [claimed.message.data for claim in claims for claimed in claim.messages] == ["late"]
            await relay.settle(claims)
        found = await store.ops.find(Query())
        assert [record.message.data for record in found] == ["early", "late"], "the early one has the earlier seq"
        claims = await relay.claim()
        assert [claimed.message.data for claim in claims for claimed in claim.messages] == ["early"]

    async def test_two_writers_at_once_lose_nothing(self, store: Store) -> None:
        await asyncio.gather(*(store.outbox.put([a_message(key=f"k{number}")]) for number in range(20)))
        assert len(await store.ops.find(Query())) == 20
