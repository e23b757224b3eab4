"""How a person names messages, and which ones a list shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried
from postroom.contracts.store import Store
from postroom.errors import PostroomError
from postroom.ops.lookup import id_or_head, ids_of, newest
from postroom.stores.memory import MemoryStore
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts._case import a_message, a_relay

FIRST, SECOND = (UUID(f"01890000-0000-7000-{group}-000000000001") for group in ("8000", "9000"))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "post.db")
    async with opened:
        await opened.schema.migrate()
        yield opened


async def test_ids_are_named_by_their_beginning_each_once(store: Store) -> None:
    await store.outbox.put([a_message(id=FIRST), a_message(id=SECOND)])
    assert await ids_of(store, ["01890000-0000-7000-8", str(FIRST), str(SECOND).upper()]) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("order-7", "'order-7' is not the id of a message"),
        ("01890000", f"Several ids begin with 01890000: {FIRST}, {SECOND}; type more of it."),
        ("01890001", "No message has an id that begins with 01890001"),
    ],
)
async def test_a_text_that_names_no_message_or_several_is_refused(store: Store, text: str, said: str) -> None:
    await store.outbox.put([a_message(id=FIRST), a_message(id=SECOND)])
    with pytest.raises(PostroomError, match=said):
        await ids_of(store, [text])


async def test_a_whole_id_is_taken_as_it_is(store: Store) -> None:
    assert await ids_of(store, [str(FIRST)]) == [FIRST]
    assert await id_or_head(store, str(FIRST)) == FIRST


async def test_a_key_names_the_message_that_the_others_wait_for(store: Store) -> None:
    messages = [a_message(key="order-7") for _ in range(3)]
    await store.outbox.put(messages)
    assert await id_or_head(store, "order-7") == messages[0].id
    relay = await a_relay(store)
    await relay.settle(await relay.claim(limit=1))
    await relay.settle(await relay.claim(limit=1), Buried("X"))
    assert await id_or_head(store, "order-7") == messages[1].id
    with pytest.raises(PostroomError, match="neither a message nor a key 'order-8'"):
        await id_or_head(store, "order-8")


async def test_a_list_that_is_cut_says_so_and_how_many_there_are_where_that_is_cheap(store: Store) -> None:
    await store.outbox.put([a_message(type="a", key=str(number)) for number in range(5)])
    everything = await newest(store, Query(limit=2))
    assert ([each.message.key for each in everything.records], everything.is_cut, everything.total) == (
        ["3", "4"],
        True,
        5,
    )
    assert (await newest(store, Query(status="pending", limit=2))).total == 5
    of_a_type = await newest(store, Query(type="a", limit=2))
    assert (len(of_a_type.records), of_a_type.is_cut, of_a_type.total) == (2, True, None)
    for whole in (await newest(store, Query(limit=5)), await newest(store, Query())):
        assert (len(whole.records), whole.is_cut) == (5, False)
