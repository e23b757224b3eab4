"""A random walk: relays come and go, doors shut, answers are lost, the broker does what it likes, a person requeues. Minutes
of it pass in milliseconds, and the same seed always takes the same way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta

from tests.mutants.world import LEASE, SEND, Answer, World

from postroom.contracts.ops import Query
from postroom.contracts.transport import Failed, Outcome, Rejected, Unavailable
from postroom.message import Message

KEYS = "abcdef"
METHODS = ("claim", "settle", "peek", "renew", "join", "all", "relays", "take", "release", "leave")
SECONDS = 90.0


class Walk:
    """One way through the weather."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.dice = world, random.Random(seed)
        self.spent: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.healing = False
        self._started = 0

    async def go(self) -> None:
        for _ in range(2):
            self.start()
        clock = asyncio.get_running_loop()
        while clock.time() < SECONDS:
            await asyncio.sleep(self.dice.expovariate(2.0))
            await self.step()
        await self.heal()
        tries = {f"m{record.message.data}": record.attempts for record in self.world.records()}
        self.world.check(**{name: number + self.spent[name] - 1 for name, number in tries.items()})

    def start(self) -> None:
        self._started += 1
        patterns = ("x.*", "y.*") if self.dice.random() < 0.5 else ("*",)
        self.world.start(f"relay-{self._started}", *[self.answer] * len(patterns), patterns=patterns)

    async def step(self) -> None:
        what = self.dice.choice(("put", "put", "put", "put", "shut", "shut", "lose", "lose", "turn", "requeue"))
        self.done[what] += 1
        alive = [name for name, task in self.world.tasks.items() if not task.done()]
        if what == "put":
            for _ in range(self.dice.randint(1, 4)):
                await self.world.put(self.dice.choice(KEYS), type=self.dice.choice(("x.made", "y.made")))
        elif what == "shut" and alive:
            name = self.dice.choice(alive)
            door = self.dice.choice(self.world.doors[name])
            door.shut = True
            later = self.dice.choice((0.3, LEASE / 3, LEASE, 2 * LEASE))
            asyncio.get_running_loop().call_later(later, setattr, door, "shut", False)
        elif what == "lose" and alive:
            for door in self.world.doors[self.dice.choice(alive)]:
                door.next[self.dice.choice(METHODS)].append(self.dice.choice(("lost", "refused")))
                door.slow[self.dice.choice(METHODS)] = self.dice.choice((0.001, 0.001, 0.3, 1.0))
        elif what == "turn" and alive:
            self.world.relays[self.dice.choice(alive)].stop()
            self.start()
        elif what == "requeue":
            await self.requeue()

    def answer(self, message: Message, time: int) -> Outcome | Answer | None:
        roll = self.dice.random()
        if self.healing or roll < 0.7:
            return Answer(seconds=self.dice.choice((0.0, 0.05, SEND * 0.4)))
        ways = (
            Failed("NO"),
            Answer(Failed("TIMEOUT", unknown=True), seconds=SEND * 0.5),
            Answer(Failed("TIMEOUT", unknown=True), seconds=SEND * 0.5, effect=False),
            Answer(seconds=5 * SEND, effect=False),
            Answer(Rejected("NO"), effect=False),
            Unavailable(retry_after=timedelta(seconds=0.2)),
        )
        return self.dice.choice(ways)

    async def requeue(self) -> None:
        dead = await self.world.store.ops.find(Query(status="dead"))
        self.spent.update({f"m{record.message.data}": record.attempts for record in dead})
        if dead:
            await self.world.store.ops.requeue(Query(ids=[record.message.id for record in dead]))

    async def heal(self) -> None:
        """Everything works again: then everything is delivered."""
        self.healing = True
        for doors in self.world.doors.values():
            for door in doors:
                door.shut = False
                door.next.clear()
                door.slow.clear()
        clock = asyncio.get_running_loop()
        end = clock.time() + 600
        while not all(status == "published" for status in self.world.statuses()):
            assert clock.time() < end, f"it does not drain: {Counter(self.world.statuses())}"
            assert any(not task.done() for task in self.world.tasks.values()), "no relay is left"
            await self.requeue()
            await asyncio.sleep(1)
