"""What an inbox has on record: failures, the dead, what was handled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.clock import utcnow
from postroom.contracts.inbox import UNFINISHED, DeadQuery, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.testing.contracts._case import HOSTILE_TEXTS, a_message
from postroom.testing.contracts.inbox import BILLING, Desk, InboxCase, a_delivery, an_event
from postroom.text import is_storable


class RecordsContract(InboxCase):
    """What an inbox's records promise: nothing dead is lost, and nothing handled is handled again."""

    async def test_two_sources_fail_and_die_apart(self, desk: Desk) -> None:
        here = a_delivery()
        there = a_delivery("/depot", id=here.message.id)
        assert await desk.store.failed(BILLING, here.identity, "OOPS", "no luck") == 1
        assert await desk.store.failed(BILLING, there.identity, "OOPS", "no luck") == 1
        await desk.store.bury(BILLING, there, "OOPS", "no luck")
        assert [each.source for each in await desk.store.dead(DeadQuery())] == ["/depot"]
        assert await self.handle(desk, here.identity), "the other one is dead, not this one"
        assert not await self.handle(desk, there.identity)
        assert await desk.store.counts() == {BILLING: {"handled": 1, "dead": 1}}
        async with desk.store.transaction() as tx:
            await tx.unbury(BILLING, [here.identity])
        assert len(await desk.store.dead(DeadQuery())) == 1
        assert await desk.store.requeue(DeadQuery(ids=[there.message.id])) == 1
        assert await self.handle(desk, there.identity), "requeued"
        assert not await self.handle(desk, here.identity), "handled before"

    async def test_failures_are_counted_apart_from_the_handlers_transaction(self, desk: Desk) -> None:
        event = an_event()
        assert [await desk.store.failed(BILLING, event, "OOPS", "no luck") for _ in range(2)] == [1, 2]
        assert await desk.store.counts() == {BILLING: {"failing": 1}}
        assert await self.handle(desk, event)
        assert await desk.store.counts() == {BILLING: {"handled": 1}}
        assert await desk.store.failed(BILLING, event, "OOPS", "too late") == 0

    @pytest.mark.parametrize("text", HOSTILE_TEXTS)
    async def test_an_error_of_any_text_is_counted_and_dead(self, desk: Desk, text: tuple[str, str]) -> None:
        said, kept = text
        delivery = a_delivery()
        assert await desk.store.failed(BILLING, delivery.identity, said[:20], said) == 1
        await desk.store.bury(BILLING, delivery, f"OOPS {said[:20]}", said)
        (dead,) = await desk.store.dead(DeadQuery())
        assert dead.error == kept
        assert dead.code.startswith("OOPS")

    @pytest.mark.parametrize("name", ["a\x00b", "half \ud800", "\x1b[2J", "x" * 100_000, "\ud800" * 100_000])
    async def test_a_delivery_of_any_names_is_dead_with_its_bytes(self, desk: Desk, name: str) -> None:
        message = a_message(
            type=name, key=name, body=b"\x00\xff", content_type=name, headers={name: name}, correlation_id=name
        )
        await desk.store.bury(BILLING, Delivery(message, name, name), "NO_EVENT", name)
        (dead,) = await desk.store.dead(DeadQuery(consumer=BILLING))
        assert (dead.message.id, dead.message.body) == (message.id, b"\x00\xff")
        for kept in (dead.message.type, dead.message.key, dead.topic, dead.source):
            assert kept
            assert is_storable(kept)
        assert await desk.store.requeue(DeadQuery(ids=[message.id])) == 1
        assert len(await desk.store.dead(DeadQuery(requeued=True))) == 1

    async def test_a_try_that_was_counted_before_it_began_is_not_counted_again(self, desk: Desk) -> None:
        store, event = desk.store, an_event()
        tries = [(UNFINISHED, 1), (UNFINISHED, 2), ("OOPS", 2), ("OOPS", 3), (UNFINISHED, 4), ("OOPS", 4)]
        for code, attempts in tries:
            assert await store.failed(BILLING, event, code, "no luck") == attempts
        assert await store.failed(BILLING, event, UNFINISHED, "") == 5
        assert await self.handle(desk, event)
        (known,) = await store.known(KnownQuery(ids=[event.id]))
        assert (known.outcome, known.attempts, known.code, known.error) == ("handled", 5, None, None)
        assert await store.failed(BILLING, event, UNFINISHED, "") == 0, "it is handled, and stays so"

    async def test_what_is_on_record_of_a_message_is_found(self, desk: Desk) -> None:
        store, events = desk.store, [an_event(), an_event(), an_event("/depot"), an_event()]
        ids = [event.id for event in events]
        await self.handle(desk, events[0])
        await store.failed(BILLING, events[1], "OOPS", "no luck")
        await store.bury(BILLING, a_delivery("/depot", id=ids[2]), "LOST", "no hope")
        await store.failed("mailing", events[1], "LATE", "too late")
        assert list(await store.known(KnownQuery(ids=[ids[3]]))) == []
        found = await store.known(KnownQuery(consumer=BILLING))
        assert [(each.consumer, Identity(each.source, each.id)) for each in found] == [
            (BILLING, event) for event in events[:3]
        ]
        assert [(each.outcome, each.attempts, each.code, each.error) for each in found] == [
            ("handled", 1, None, None),
            ("failing", 1, "OOPS", "no luck"),
            ("dead", 0, "LOST", "no hope"),
        ]
        assert all(abs(each.at - utcnow()) < timedelta(minutes=1) for each in found)
        queries = {
            "outcome": KnownQuery(outcome="failing"),
            "ids": KnownQuery(ids=[ids[1], ids[3]]),
            "consumer and ids": KnownQuery(consumer=BILLING, ids=[ids[1]]),
            "source": KnownQuery(source="/depot"),
            "another source": KnownQuery(ids=[ids[1]], source="/depot"),
            "the newest": KnownQuery(limit=1),
        }
        told_of = {what: [each.consumer for each in await store.known(query)] for what, query in queries.items()}
        assert told_of == {
            "outcome": [BILLING, "mailing"],
            "ids": [BILLING, "mailing"],
            "consumer and ids": [BILLING],
            "source": [BILLING],
            "another source": [],
            "the newest": ["mailing"],
        }

    async def test_what_is_dead_has_its_bytes_and_is_known(self, desk: Desk) -> None:
        delivery = a_delivery(
            key="ключ", body=bytes(range(256)), content_type="image/png", headers={"x-tenant": "acme"}
        )
        await desk.store.failed(BILLING, delivery.identity, "OOPS", "no luck")
        for _ in range(2):
            await desk.store.bury(BILLING, delivery, "MAX_ATTEMPTS", "no luck, six times")
        (dead,) = await desk.store.dead(DeadQuery())
        assert dead.message.replace(time=delivery.message.time) == delivery.message
        assert (dead.consumer, dead.source, dead.topic) == (BILLING, "shop", "orders")
        assert (dead.attempts, dead.code, dead.error) == (1, "MAX_ATTEMPTS", "no luck, six times")
        assert abs(dead.dead_at - utcnow()) < timedelta(minutes=1)
        assert not await self.handle(desk, delivery.identity)
        assert await desk.store.counts() == {BILLING: {"dead": 1}}

    async def test_what_is_handled_is_not_dead_any_more(self, desk: Desk) -> None:
        delivery = a_delivery()
        await self.handle(desk, delivery.identity)
        await desk.store.bury(BILLING, delivery, "LATE", "another was quicker")
        assert list(await desk.store.dead(DeadQuery())) == []

    async def test_what_is_requeued_is_new_again_with_no_attempts_made(self, desk: Desk) -> None:
        delivery = a_delivery(key="a")
        event, id_ = delivery.identity, delivery.message.id
        for _ in range(3):
            await desk.store.failed(BILLING, event, "OOPS", "no luck")
        await desk.store.bury(BILLING, delivery, "OOPS", "no luck")
        assert await desk.store.requeue(DeadQuery(consumer="mailing")) == 0
        assert await desk.store.requeue(DeadQuery(consumer=BILLING, ids=[id_])) == 1
        assert await desk.store.requeue(DeadQuery(ids=[id_])) == 0, "it is requeued already"
        assert [each.message.id for each in await desk.store.dead(DeadQuery(requeued=True))] == [id_]
        assert await desk.store.failed(BILLING, event, "OOPS", "again") == 1
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, [event]) == {event}
            await tx.unbury(BILLING, [event])
        assert list(await desk.store.dead(DeadQuery())) == []

    async def test_dead_ones_are_found_by_what_is_known_of_them(self, desk: Desk) -> None:
        one, two = a_delivery(type="order.paid", key="a"), a_delivery(type="order.sent", key="b")
        await desk.store.bury(BILLING, one, "OOPS", "")
        await desk.store.bury("mailing", two, "CORRUPT", "")
        queries = {
            "consumer": DeadQuery(consumer="mailing"),
            "type": DeadQuery(type="order.sent"),
            "key": DeadQuery(key="b"),
            "code": DeadQuery(code="CORRUPT"),
            "ids": DeadQuery(ids=[two.message.id]),
            "not requeued, from two": DeadQuery(consumer="mailing", requeued=False),
        }
        for what, query in queries.items():
            assert [each.message.id for each in await desk.store.dead(query)] == [two.message.id], what
        assert len(await desk.store.dead(DeadQuery(limit=1))) == 1
        assert list(await desk.store.dead(DeadQuery(requeued=True))) == []

    async def test_what_was_handled_long_ago_is_forgotten_and_what_is_dead_is_not(self, desk: Desk) -> None:
        ids = [an_event() for _ in range(5)]
        for event in ids:
            await self.handle(desk, event)
        await desk.store.bury(BILLING, a_delivery(), "OOPS", "")
        assert await desk.store.purge(BILLING, utcnow() - timedelta(hours=1)) == 0
        assert await desk.store.purge(BILLING, utcnow() + timedelta(hours=1), limit=3) == 3
        assert await desk.store.purge(BILLING, utcnow() + timedelta(hours=1)) == 2
        assert await desk.store.counts() == {BILLING: {"dead": 1}}

    async def test_what_one_consumer_forgets_another_still_knows(self, desk: Desk) -> None:
        event = an_event()
        for consumer in ("billing", "mailing"):
            await self.handle(desk, event, consumer=consumer)
        assert await desk.store.purge("billing", utcnow() + timedelta(hours=1)) == 1
        assert await self.handle(desk, event, consumer="billing"), "it was forgotten"
        assert not await self.handle(desk, event, consumer="mailing"), "another inbox's memory was erased"

    async def test_what_its_handler_committed_too_early_can_be_buried_all_the_same(self, desk: Desk) -> None:
        delivery = a_delivery()
        await self.handle(desk, delivery.identity)
        await desk.store.bury(BILLING, delivery, "BROKEN_TRANSACTION", "it committed by itself", committed=True)
        dead = await desk.store.dead(DeadQuery())
        assert [(each.message.id, each.code) for each in dead] == [(delivery.message.id, "BROKEN_TRANSACTION")]
        assert await desk.store.counts() == {BILLING: {"dead": 1}}
        assert not await self.handle(desk, delivery.identity), "it is not handled again before a person says so"
