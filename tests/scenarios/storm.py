"""Six relays in bad weather: processes that are killed, put to sleep beyond their lease and told to end, at random, while
messages keep coming and the handler fails, dawdles and refuses. `test_six_relays.py` judges what is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.commands import POSTROOM, Popen
from tests.scenarios.shoppers import Shoppers

from postroom.contracts.ops import Query, Record
from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable
from postroom.stores import open_store
from postroom.testing.journal import Delivery, Name

Answer = TypeVar("Answer")

RELAYS = 6
LEASE_SECONDS = 3.0
ASLEEP_SECONDS = LEASE_SECONDS + 1
ASLEEP_MOST = 2
CAUGHT_SECONDS = 10.0
"""How long a fault waits for any relay to have something in flight."""
OPTIONS = ["--lease", "3s", "--send-timeout", "1s", "--poll", "100ms", "--batch", "8", "--max-attempts", "5"]
OPTIONS += ["--backoff", "100ms,200ms"]
HANDLER = """
import os, random, time
from pathlib import Path

dice = random.Random(os.environ["STORM_DICE"])
journal = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def deliver(message):
    roll = dice.random()
    if roll < 0.05 or (message.data % 61 == 60 and not Path("mercy", f"{message.key}-{message.data}").exists()):
        raise RuntimeError("refused")
    time.sleep(1.3 if roll < 0.06 else dice.random() * 0.02)
    how = "failed" if roll > 0.97 else "late" if roll < 0.06 else "well"
    os.write(journal, f"{message.key} {message.data} {os.environ['STORM_RELAY']} {how}\\n".encode())
    if how == "failed":
        raise RuntimeError("handled, but it says that it was not")
"""


@dataclass
class Process:
    """One relay."""

    name: str
    popen: subprocess.Popen[bytes]
    output: Path
    asleep: bool = False

    def wake(self) -> None:
        if self.asleep:
            self.popen.send_signal(signal.SIGCONT)
            self.asleep = False


@dataclass
class Storm:
    """The relays, who they carry for, and everything that was done to them."""

    url: str
    folder: Path
    dice: random.Random
    store: Store
    shoppers: Shoppers
    running: list[Process] = field(default_factory=list)
    leaving: list[Process] = field(default_factory=list)
    started: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[Name] = field(default_factory=Counter)
    """At how many kills and sleeps each message was in flight, as the database said while the relay stood still."""
    orphaned: dict[int, int] = field(default_factory=dict)
    """Lanes whose owner was killed or put to sleep, at the epoch it had."""
    spent: Counter[Name] = field(default_factory=Counter)
    """Tries of messages that died, from before they were requeued."""

    # ── the relays ──

    def start(self) -> None:
        self.started += 1
        name = f"relay-{self.started}"
        output = self.folder / f"{name}.out"
        env = {**os.environ, "STORM_RELAY": name, "STORM_DICE": str(self.dice.random())}
        with output.open("wb") as out:
            popen = Popen(self.command("--owner", name), cwd=self.folder, env=env, stdout=out, stderr=subprocess.STDOUT)
        self.running.append(Process(name, popen, output))

    def command(self, *more: str) -> list[str]:
        relay = [*POSTROOM, "relay", "--store", self.url, "--to", "local://handler:deliver"]
        return [*relay, *OPTIONS, *more]

    async def rage(self, seconds: float) -> None:
        """A fault a second or so: each kind as often as the others, in random order, to a random relay."""
        await self.all_at_work()
        clock = asyncio.get_running_loop()
        end = clock.time() + seconds
        kinds: list[str] = []
        while clock.time() < end:
            await asyncio.sleep(self.dice.uniform(0.6, 1.2))
            self.look_for_deserters()
            kinds = kinds or self.dice.sample(["kill", "sleep", "end"], 3)
            asleep = sum(process.asleep for process in self.running)
            if kinds[-1] == "sleep" and asleep >= ASLEEP_MOST:
                kinds.insert(0, kinds.pop())
            if awake := await self.victims():
                await self.strike(kinds.pop(), awake)
            if self.dice.random() < 0.2:
                await self.requeue_the_dead()

    async def victims(self) -> list[Process]:
        """The relays that are awake and at work."""
        at_work = await self.at_work()
        return [process for process in self.running if not process.asleep and process.name in at_work]

    async def at_work(self) -> set[str]:
        """Who has come so far as to say so in the database: before that, a signal would just end it."""
        return {relay.name for relay in await self.ask(self.store.lanes.relays)}

    async def all_at_work(self) -> None:
        """Wait for everybody: a machine may be slow to start six processes."""
        async with asyncio.timeout(60):
            while not {process.name for process in self.running} <= await self.at_work():
                self.look_for_deserters()
                await asyncio.sleep(0.05)

    async def strike(self, kind: str, awake: list[Process]) -> None:
        self.faults[kind] += 1
        if kind == "end":
            victim = self.dice.choice(awake)
            victim.popen.send_signal(signal.SIGTERM)
            self.leaving.append(victim)
        else:
            victim = await self.catch()
            await self.note_what_it_holds(victim)
        if kind == "sleep":
            return
        if kind == "kill":
            victim.asleep = False
            victim.popen.kill()
            victim.popen.wait()
        self.running.remove(victim)
        self.start()

    async def catch(self) -> Process:
        """Stop a relay while something of it is in flight, as the database says: one that holds nothing by then goes on, and
        another is looked for. After a while it is left stopped as it is."""
        clock = asyncio.get_running_loop()
        end = clock.time() + CAUGHT_SECONDS
        while True:
            awake = await self.victims()
            holding = [process for process in awake if await self.held_by(process)]
            if not awake or (not holding and clock.time() <= end):
                await asyncio.sleep(0.01)
                continue
            victim = self.dice.choice(holding or awake)
            victim.popen.send_signal(signal.SIGSTOP)
            victim.asleep = True
            # By the clock, whatever else waits: it may have stopped with a lock in its hand that we are waiting for.
            waking = clock.call_later(ASLEEP_SECONDS, victim.wake)
            if await self.held_by(victim) or clock.time() > end:
                return victim
            waking.cancel()
            victim.wake()

    async def held_by(self, victim: Process) -> list[Record]:
        """What it has in flight."""
        sending = await self.ask(lambda: self.store.ops.find(Query(status="sending")))
        return [record for record in sending if (record.owner or "").startswith(f"{victim.name}:")]

    async def note_what_it_holds(self, victim: Process) -> None:
        for record in await self.held_by(victim):
            self.in_flight[name_of(record)] += 1
        for lane in await self.ask(self.store.lanes.all):
            if (lane.owner or "").startswith(f"{victim.name}:"):
                self.orphaned[lane.lane] = lane.epoch

    def look_for_deserters(self) -> None:
        """Nobody ends unless told to, and who is told to ends well."""
        for process in self.running:
            if not process.asleep and process.popen.poll() is not None:
                raise AssertionError(f"{process.name} ended by itself:\n{process.output.read_text()}")
        for process in [each for each in self.leaving if each.popen.poll() is not None]:
            assert process.popen.returncode == 0, f"{process.name} ended badly:\n{process.output.read_text()}"
            self.leaving.remove(process)

    # ── the end ──

    async def calm(self) -> None:
        """Everybody wakes up and is told to end; one last relay carries what is left, as often as a person must help."""
        for process in self.running:
            process.wake()
        await self.all_at_work()
        for process in self.running:
            process.popen.send_signal(signal.SIGTERM)
        self.leaving += self.running
        self.running = []
        async with asyncio.timeout(60):
            while self.leaving:
                self.look_for_deserters()
                await asyncio.sleep(0.05)
        for _ in range(10):
            if await self.drain() == 0:
                return
            await self.requeue_the_dead()
        raise AssertionError("the last relay still leaves something dead, after ten rounds")

    async def drain(self) -> int:
        env = {**os.environ, "STORM_RELAY": "last-relay", "STORM_DICE": str(self.dice.random())}
        done = await asyncio.to_thread(
            subprocess.run,
            self.command("--drain"),
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in (0, 3), done.stdout + done.stderr
        return done.returncode

    async def requeue_the_dead(self) -> None:
        """What a person does: look, mend, requeue."""
        dead = await self.ask(lambda: self.store.ops.find(Query(status="dead")))
        for record in dead:
            (self.folder / "mercy" / "{}-{}".format(*name_of(record))).touch()
        if dead:
            await self.ask(lambda: self.store.ops.requeue(Query(ids=[record.message.id for record in dead])))
            self.faults["requeue"] += len(dead)
            self.spent.update({name_of(record): record.attempts for record in dead})

    def end(self) -> None:
        """Leave no process behind."""
        for process in [*self.running, *self.leaving]:
            process.popen.kill()
            process.popen.wait()

    # ── what is known ──

    async def ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask the store, again if a relay was stopped with its lock in hand."""
        for _ in range(20):
            try:
                return await question()
            except StoreUnavailable:
                await asyncio.sleep(0.5)
        return await question()

    def journal(self) -> list[tuple[Delivery, str]]:
        """Every delivery, with how it went."""
        lines = (line.split() for line in (self.folder / "journal").read_text().splitlines())
        return [(Delivery(Name(key, int(number)), relay), how) for key, number, relay, how in lines]


def name_of(record: Record) -> Name:
    return Name(str(record.message.key), int(record.message.data))


@asynccontextmanager
async def storm(url: str, folder: Path, seed: str) -> AsyncIterator[Storm]:
    (folder / "handler.py").write_text(HANDLER)
    (folder / "mercy").mkdir()
    (folder / "journal").touch()
    async with open_store(url) as store:
        await store.schema.migrate()
        with Shoppers(url, folder / "journal", seed) as shoppers:
            weather = Storm(url, folder, random.Random(seed), store, shoppers)
            try:
                for _ in range(RELAYS):
                    weather.start()
                yield weather
            finally:
                weather.end()
