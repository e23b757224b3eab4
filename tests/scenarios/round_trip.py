"""A round trip: an outbox, a relay, a broker, a consumer, an inbox; the processes of the middle are killed again and again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psycopg
from tests.commands import POSTROOM, Popen

from postroom.contracts.ops import Query
from postroom.message import Message
from postroom.stores import open_store

KEYS = 40
RELAY = ["--lease", "3s", "--send-timeout", "1400ms", "--poll", "100ms", "--backoff", "0.2"]
RELAY += ["--max-attempts", "1000"]
APP = """
from postroom import Inbox, RetryPolicy

inbox = Inbox("billing", retry=RetryPolicy.parse("0.1", max_attempts=1000))

@inbox.on("order.paid", batch=500)
async def charge(messages, tx):
    await tx.execute(
        "INSERT INTO effects (key, number) SELECT * FROM unnest(%s::text[], %s::integer[])",
        [[each.key for each in messages], [each.data for each in messages]],
    )
"""
EFFECTS = "CREATE TABLE effects (id bigserial PRIMARY KEY, key text NOT NULL, number integer NOT NULL)"
WHO = {"relay": "relay ", "consumer": "inbox billing"}
AWAY_SECONDS = 2.0
BUSY_SECONDS = 8.0
"""How long a relay may take to have something in flight before it is killed all the same: a lease, and a start."""
QUIET_MOST = 120.0
"""A trip on which nothing arrives for so many seconds has come to a stop."""


class Broker(Protocol):
    """One that a test may kill."""

    def kill(self) -> None: ...
    def start_again(self) -> None: ...


@dataclass
class Trip:
    """One trip: from where to where, and over what."""

    outbox: str
    to: str
    source: str
    inbox: str
    folder: Path
    number: int
    dice: random.Random
    batch: int = 500
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    """Where the words of the last one begin in its log."""
    kills: int = 0
    put: int = 0
    """How many messages there are so far."""
    hit: int = 0
    """How many were in flight when their relay was killed."""

    async def prepare(self, first: int) -> None:
        """Tables, an app, and the first messages: the rest comes under way, so that a relay is not killed at rest."""
        (self.folder / "app.py").write_text(APP)
        for url in {self.outbox, self.inbox}:
            async with open_store(url) as store:
                await store.schema.migrate()
        with psycopg.connect(self.inbox) as connection:
            connection.execute(EFFECTS)
        await self.put_more(first)

    async def put_more(self, number: int) -> None:
        some = range(self.put, min(self.put + number, self.number))
        async with open_store(self.outbox) as store:
            await store.outbox.put([Message("order.paid", key=f"k{n % KEYS}", data=n // KEYS) for n in some])
        self.put = some.stop

    def start(self, what: str) -> None:
        unsigned = ["--unsigned"] if self.source.startswith("http:") else []
        commands = {
            "relay": ["relay", "--store", self.outbox, "--to", self.to, *RELAY, "--batch", str(self.batch)],
            "consumer": ["consume", "--store", self.inbox, "--from", self.source, "--app", "app:inbox", *unsigned],
        }
        self.begun[what] = self._log_size(what)
        with (self.folder / f"{what}.log").open("ab") as said:
            self.running[what] = Popen(
                [*POSTROOM, *commands[what]],
                cwd=self.folder,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=dict(os.environ),
            )

    def _log_size(self, what: str) -> int:
        log = self.folder / f"{what}.log"
        return log.stat().st_size if log.exists() else 0

    async def kill(self, what: str) -> None:
        if what == "relay":
            self.hit += await self._in_flight()
        self.running[what].kill()
        self.running[what].wait()
        self.kills += 1
        self.start(what)

    async def _in_flight(self) -> int:
        """How many messages the relay sends at this moment. Wait for some, but not for ever: it may be too quick to be seen."""
        mine, end = f":{self.running['relay'].pid}:", time.monotonic() + BUSY_SECONDS
        async with open_store(self.outbox) as store:
            while time.monotonic() < end:
                if number := sum(mine in (each.owner or "") for each in await store.ops.find(Query(status="sending"))):
                    return number
                await asyncio.sleep(0.01)
        return 0

    def said(self, what: str) -> str:
        return (self.folder / f"{what}.log").read_text()

    def effects(self) -> int:
        with psycopg.connect(self.inbox) as connection:
            row = connection.execute("SELECT count(*) FROM effects").fetchone()
        return int(row[0]) if row else 0

    async def go(self, *, kills: int, broker: Broker | None = None) -> None:
        """Carry all of it, killing one or the other every now and then while something moves: the broker, if one is given,
        else the relay or the consumer."""
        self.start("consumer")
        await self._up("consumer")
        self.start("relay")
        seen, moved, last_kill, portion = 0, time.monotonic(), 0, self.number // (2 * kills)
        while seen < self.number:
            await asyncio.sleep(0.2)
            before, seen = seen, self.effects()
            if seen != before:
                moved = time.monotonic()
            for what, process in self.running.items():
                assert process.poll() is None, f"the {what} ended by itself:\n{self.said(what)[-3000:]}"
            assert time.monotonic() - moved < QUIET_MOST, await self._stuck(seen)
            strike = self.kills < kills and seen >= last_kill + portion
            if self.put < self.number and (strike or seen >= self.put or self.kills >= kills):
                await self.put_more(portion)
            if strike:
                last_kill = seen
                if broker is None:
                    await self.kill(self.dice.choice(["relay", "consumer"]))
                else:
                    self.kills += 1
                    await asyncio.to_thread(broker.kill)
                    await asyncio.sleep(AWAY_SECONDS)
                    await asyncio.to_thread(broker.start_again)
                    moved = time.monotonic()

    async def _stuck(self, seen: int) -> str:
        async with open_store(self.outbox) as store:
            records = [record for record in await store.ops.find(Query()) if record.settled_at is None]
        why = Counter((record.last_error_code, record.last_error) for record in records).most_common(5)
        said = [self.said(what)[-2000:] for what in ("relay", "consumer")]
        return "\n".join([f"stuck at {seen} of {self.number}", *map(str, why), *said])

    async def _up(self, what: str) -> None:
        """Until the last one that was started says who it is. One that was killed at once may never have."""
        deadline = time.monotonic() + QUIET_MOST
        process, log = self.running[what], self.folder / f"{what}.log"
        while not any(
            line.startswith(WHO[what]) for line in log.read_bytes()[self.begun[what] :].decode().splitlines()
        ):
            assert process.poll() is None, f"the {what} ended by itself:\n{self.said(what)[-3000:]}"
            assert time.monotonic() < deadline, f"the {what} never came up:\n{self.said(what)[-3000:]}"
            await asyncio.sleep(0.1)

    async def end(self) -> None:
        """Both end by themselves when they are told to."""
        for what, process in self.running.items():
            await self._up(what)
            process.send_signal(signal.SIGTERM)
        for what, process in self.running.items():
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"the {what} did not end:\n{self.said(what)[-3000:]}") from None
            assert code == 0, f"the {what} ended with {code}:\n{self.said(what)[-3000:]}"

    def check(self) -> None:
        """Raise AssertionError for what was lost, came twice, or came out of order."""
        with psycopg.connect(self.inbox) as connection:
            rows = connection.execute("SELECT key, number FROM effects ORDER BY id").fetchall()
            counts = connection.execute("SELECT outcome, count(*) FROM inbox GROUP BY 1").fetchall()
        lines: defaultdict[str, list[int]] = defaultdict(list)
        for key, number in rows:
            lines[key].append(number)
        wrong = {key: _first_difference(line, self.number // KEYS) for key, line in lines.items()}
        wrong = {key: what for key, what in wrong.items() if what}
        assert not wrong, "\n".join(f"{key}: {what}" for key, what in sorted(wrong.items()))
        assert len(lines) == KEYS
        assert dict(counts) == {"handled": self.number}

    async def check_outbox(self) -> None:
        async with open_store(self.outbox) as store:
            statuses = {record.status for record in await store.ops.find(Query())}
        assert statuses == {"published"}


def _first_difference(line: list[int], each: int) -> str:
    """Where a key's effects are not 0, 1, 2 …; empty when they are."""
    expected = list(range(each))
    if line == expected:
        return ""
    place = next((n for n, (a, b) in enumerate(zip(line, expected, strict=False)) if a != b), min(len(line), each))
    return f"{len(line)} effects, {len(set(line))} different; at {place}: {line[max(place - 2, 0) : place + 6]}"


@contextmanager
def trip(trip: Trip) -> Iterator[Trip]:
    """Nothing of it runs on after the test."""
    try:
        yield trip
    finally:
        for process in trip.running.values():
            process.kill()
            process.wait()
