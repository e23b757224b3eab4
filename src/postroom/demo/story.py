"""The story: orders come in, and the faults strike, one after the other."""

from __future__ import annotations

from postroom.clock import utcnow
from postroom.contracts.ops import Query
from postroom.demo.books import Books
from postroom.demo.shop import Order
from postroom.demo.stage import Line
from postroom.demo.world import HOOK_FAILS, RelayProcess, World

KILLED, DOUBLED, POISON = 8, 2, 11
"""The orders that something happens to."""


async def play(world: World) -> None:
    """Tell it."""
    with world.stage.open():
        first = await _one_commit(world)
        await _a_webhook_fails(world)
        second = await _a_relay_is_killed(world, first)
        await _a_broker_delivers_twice(world)
        await _a_message_is_poison(world, second)
        await world.pause(3)


async def _one_commit(world: World) -> RelayProcess:
    world.stage.scene("1/5  An order and its message are one commit. What rolls back never was.")
    relay = await world.start_relay("relay-1", stuck=KILLED)
    for order in (Order(1, "ada", 120), Order(2, "grace", 80), Order(3, "edsger", 9_999), Order(4, "barbara", 45)):
        await world.take(order)
    await _all_is_done(world)
    return relay


async def _a_webhook_fails(world: World) -> None:
    world.stage.scene("2/5  A webhook fails. It is tried again; only its own customer waits.")
    await world.take(Order(5, "ada", 60), tell=True)
    await world.until(lambda _: world.hook_fails < HOOK_FAILS, "the webhook is called")
    world.stage.strike("Ada's webhook answers 503", "her line waits, the others go on")
    await world.take(Order(6, "grace", 30))
    await world.take(Order(7, "ada", 35))
    await _all_is_done(world)
    world.stage.fix("the third try worked, and Ada's next order came after it")
    await world.pause(2)


async def _a_relay_is_killed(world: World, first: RelayProcess) -> RelayProcess:
    stage = world.stage
    stage.scene("3/5  The relay is killed with -9, just after the broker confirmed.")
    await world.take(Order(KILLED, "grace", 70))
    await world.until(lambda _: f"confirmed {KILLED}" in first.heard, f"the relay publishes order {KILLED}")
    await first.kill()
    stage.fallen.add(first.name)
    stage.tell(Line("relay", f"kill -9 {first.pid}: {first.name} is gone, without a word", style="bold red"))
    with world.watching(lambda books: _tell_of_lease(world, first, books)):
        await world.pause(2)
        second = await world.start_relay("relay-2", refused=POISON)
        await world.take(Order(9, "barbara", 15))
        await world.take(Order(10, "ada", 90))
        await world.until(lambda books: _lease_left(books, first) is None, "relay-2 takes the lanes of relay-1")
    stage.fix("the lease is over: relay-2 took the lanes, and sends order 8 again")
    await world.until(lambda books: books.all_done and books.came_again(KILLED), f"order {KILLED} comes again")
    await world.pause(2)
    return second


def _lease_left(books: Books, relay: RelayProcess) -> float | None:
    left = books.lease_left(relay.name, utcnow())
    return None if left is None else left.total_seconds()


def _tell_of_lease(world: World, relay: RelayProcess, books: Books) -> None:
    left = _lease_left(books, relay)
    now = f"its lease ends in {left:.1f} s" if left else "its lease is over"
    world.stage.strike(f"{relay.name} was killed with -9, order {KILLED} in its hands", now)


async def _a_broker_delivers_twice(world: World) -> None:
    world.stage.scene("4/5  The broker delivers an old message again. The inbox knows it.")
    world.stage.strike(f"the broker delivers order {DOUBLED} again, to both consumers")
    await world.publish((await world.look()).record(DOUBLED).message)
    await world.until(lambda books: books.came_again(DOUBLED), f"order {DOUBLED} comes again")
    await world.pause(2)
    world.stage.fix("both inboxes knew it: no second bill, no second parcel")
    await world.pause(2)


async def _a_message_is_poison(world: World, relay: RelayProcess) -> None:
    stage = world.stage
    stage.scene("5/5  A message is poison. It parks its customer's line, until a person acts.")
    for order in (Order(POISON, "barbara", 25), Order(12, "barbara", 40), Order(13, "edsger", 55)):
        await world.take(order)
    parked = await world.until(_only_barbara_waits, f"order {POISON} is parked")
    stage.strike(f"the broker refused order {POISON}", "it is dead, Barbara's next one waits behind it")
    stage.dwell(parked)
    await world.pause(4)
    await relay.tell(refused=None)
    stage.tell(Line("person", "fixes what was wrong with it", style="cyan"))
    await world.pause(2)
    await world.database.store.ops.requeue(Query(ids=[parked.record(POISON).message.id]))
    stage.tell(Line("person", "postroom requeue --status dead", style="cyan"))
    await _all_is_done(world)
    stage.fix("released: both of Barbara's orders went, in order")


def _only_barbara_waits(books: Books) -> bool:
    waiting = [record for record in books.records if not books.is_done(record)]
    return [record.parked for record in waiting] == [True, True]


async def _all_is_done(world: World) -> None:
    await world.until(lambda books: books.all_done, "every message is handled")
