"""`postroom consume` as a real process, between a NATS stream and a database with a table for effects."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from tests.commands import POSTROOM, Popen
from tests.servers.streams import at_once

from postroom.contracts.inbox import DeadDelivery, DeadQuery
from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.stores import open_store
from postroom.stores.sqlite.url import path_of
from postroom.transports.nats import NatsPublisher

CONSUME = [*POSTROOM, "consume", "--app", "billing:inbox"]
EFFECTS = {
    "sqlite": "CREATE TABLE effects (id INTEGER PRIMARY KEY, key TEXT NOT NULL, data INTEGER NOT NULL)",
    "postgresql": "CREATE TABLE effects (id bigserial PRIMARY KEY, key text NOT NULL, data integer NOT NULL)",
}
PATIENCE = 60.0


@dataclass
class Receiver:
    """A stream with messages in it, a database, and the inbox `billing` between them."""

    store: str
    folder: Path
    nats: str
    stream: str
    ack_wait: str = "1s"

    @property
    def source(self) -> str:
        return f"{self.nats}/{self.stream}?ack_wait={self.ack_wait}"

    @contextmanager
    def consuming(self, *options: str, **env: str) -> Iterator[subprocess.Popen[str]]:
        running = Popen(
            [*CONSUME, "--store", self.store, "--from", self.source, *options],
            cwd=self.folder,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield running
        finally:
            running.kill()
            running.communicate()

    def finish(self) -> None:
        """Let others do the rest: one is enough, unless the machine is slower than the broker's patience."""
        end = time.monotonic() + PATIENCE
        while True:
            with self.consuming("--until-idle", "1500ms") as running:
                out, _ = running.communicate(timeout=PATIENCE)
            assert running.returncode in (0, 3), out
            if not self.open():
                return
            assert time.monotonic() < end, f"{self.open()} were never acknowledged: {out}"

    def open(self) -> int:
        """How many messages the group has not acknowledged."""

        async def ask(js: Any) -> int:
            found = await js.consumer_info(self.stream, "billing")
            return int((found.num_ack_pending or 0) + (found.num_pending or 0))

        return at_once(self.nats, ask)

    def send(self, messages: Sequence[Message]) -> None:
        async def send() -> None:
            publisher = NatsPublisher(f"{self.nats}/{self.stream}?subject={self.stream}.all", source="shop")
            await publisher.open()
            batch = [Envelope(message) for message in messages]
            outcomes = await publisher.publish(batch, timeout=timedelta(seconds=PATIENCE))
            await publisher.close()
            assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes

        asyncio.run(send())

    def prepare(self) -> None:
        """Make the tables."""

        async def migrate() -> None:
            async with open_store(self.store) as store:
                await store.schema.migrate()

        asyncio.run(migrate())
        self.sql(EFFECTS[self.store.partition(":")[0]])

    def effects(self) -> list[tuple[str, int]]:
        """Key and number of every effect there is, in their order."""
        return self.sql("SELECT key, data FROM effects ORDER BY id")

    def sql(self, statement: str) -> list[Any]:
        if self.store.startswith("sqlite"):
            file = sqlite3.connect(path_of(self.store), isolation_level=None, timeout=PATIENCE)
            try:
                return file.execute(statement).fetchall()
            finally:
                file.close()
        with psycopg.connect(self.store, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def dead(self) -> list[DeadDelivery]:
        async def dead() -> list[DeadDelivery]:
            async with open_store(self.store) as store:
                return list(await store.inbox.dead(DeadQuery()))

        return asyncio.run(dead())
