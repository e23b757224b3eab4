"""Text from outside: an error may say anything, and a store keeps of it what it can."""

from __future__ import annotations

import pytest

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Retry
from postroom.contracts.store import Store
from postroom.testing.contracts._case import HOSTILE_TEXTS, LEASE, NOON, SECOND, StoreCase, a_relay, put


class TextsContract(StoreCase):
    """An error that could not be written down would be met again at each try, and end the relay each time."""

    @pytest.mark.parametrize("text", HOSTILE_TEXTS)
    async def test_an_error_of_any_text_is_settled(self, store: Store, text: tuple[str, str]) -> None:
        said, kept = text
        await put(store, "a")
        relay = await a_relay(store)
        code = f"CODE {said[:20]}"
        assert await relay.settle(await relay.claim(), Retry(SECOND, code, said)) == "settled"
        (record,) = await store.ops.find(Query())
        assert record.last_error == kept
        assert await relay.settle(await relay.claim(now=NOON + SECOND), Buried(code, said)) == "settled"
        (record,) = await store.ops.find(Query())
        assert (record.status, record.last_error) == ("dead", kept)
        assert record.last_error_code is not None
        assert record.last_error_code.isprintable()

    async def test_what_was_lost_is_let_go_whatever_is_said_of_it(self, store: Store) -> None:
        await put(store, "a")
        for number in range(3):  # lost alone, and not for the first time: only then it is buried (R8)
            now = NOON + number * 2 * LEASE
            relay = await a_relay(store, f"relay-{number}", now=now)
            assert await store.outbox.claim(relay.owner, relay.lanes, limit=9, alone=True, now=now + 40 * SECOND)
        said = Buried("CRASH_LOOP", "half a pair \ud800 and \x00")
        await store.lanes.take("heir", limit=10_000, lease=LEASE, lost=lambda _: said, now=NOON + 6 * LEASE)
        (record,) = await store.ops.find(Query())
        assert (record.status, record.last_error) == ("dead", r"half a pair \ud800 and \x00")
