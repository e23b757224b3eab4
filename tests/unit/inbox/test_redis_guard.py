"""The guard in Redis: once while the key lives, and honest about the rest."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.inbox.shops import Shop, an_inbox, paid

from postroom.errors import ConfigError, StoreUnavailable
from postroom.inbox import RedisGuard, Unacceptable
from postroom.message import Message

pytestmark = pytest.mark.anyio
LONG = timedelta(days=8)


def a_guard(url: str, **options: Any) -> RedisGuard:
    return RedisGuard(f"{url}/0", ttl=LONG, **options)


async def test_a_message_is_handled_once_and_a_failure_gives_its_key_back(
    shop: Shop, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = list[object]()
    inbox = an_inbox(f"billing-{uuid4()}", guard=a_guard(redis_url))

    @inbox.on("*")
    async def handle(message: Message, tx: Any) -> None:
        calls.append(message.data)
        if calls.count(2) == 1 and message.data == 2:
            raise OSError("once")
        if message.data == 3:
            raise Unacceptable("never")
        await shop.ainsert(tx, message.data)

    messages = [paid(1), paid(2), paid(3)]
    shop.send(*messages, messages[0])
    tally = await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["1", "2"]
    assert (tally.done["handled"], tally.done["known"], tally.done["parked"]) == (2, 1, 1)
    assert "handled twice" in caplog.text, "its limits are told when it starts"


async def test_while_one_handles_a_message_another_waits_and_then_knows_it(redis_url: str) -> None:
    one, two, id_ = a_guard(redis_url), a_guard(redis_url), uuid4()
    await asyncio.gather(one.open("billing"), two.open("billing"))
    assert (await one.enter("billing", [id_])).new == {id_}
    assert (await two.enter("billing", [id_])).busy == {id_}
    await two.leave("billing", [id_], done=False)
    assert (await two.enter("billing", [id_])).busy == {id_}, "what is another's is not given back"
    await one.leave("billing", [id_], done=True)
    entry = await two.enter("billing", [id_])
    assert (entry.new, entry.busy) == (frozenset(), frozenset())
    assert (await two.enter("mailing", [id_])).new == {id_}
    await asyncio.gather(one.close(), two.close())


async def test_one_that_died_is_followed_when_its_hold_is_over(redis_url: str) -> None:
    dead, heir, id_ = a_guard(redis_url, hold=timedelta(seconds=0.3)), a_guard(redis_url), uuid4()
    await asyncio.gather(dead.open("billing"), heir.open("billing"))
    await dead.enter("billing", [id_])
    assert (await heir.enter("billing", [id_])).busy == {id_}
    await asyncio.sleep(0.5)
    assert (await heir.enter("billing", [id_])).new == {id_}
    await asyncio.gather(dead.close(), heir.close())


async def test_a_redis_that_is_away_costs_no_attempt() -> None:
    guard = RedisGuard("redis://127.0.0.1:1/0", ttl=LONG)
    await guard.open("billing")
    with pytest.raises(StoreUnavailable, match="check that it runs"):
        await guard.enter("billing", [uuid4()])
    await guard.close()


def test_a_time_to_live_within_the_replay_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="make its ttl longer"):
        an_inbox(guard=RedisGuard("redis://localhost/0", ttl=timedelta(days=1)))
