"""A store full of messages, and a real relay that carries them to a broker: what the tests of every broker stand on."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.commands import POSTROOM, Popen

from postroom.contracts.ops import Query, Record
from postroom.message import Message
from postroom.stores import open_store

KEYS, EACH = 40, 60
BATCH, CONCURRENCY = 20, 4
IN_FLIGHT = BATCH * CONCURRENCY
PACE = ["--batch", str(BATCH), "--poll", "50ms", "--backoff", "0.2"]
TIMES = ["--lease", "30s", "--send-timeout", "4s"]
AWAY = "the broker is away"


@dataclass
class Post:
    """The store, and where its messages go."""

    store: str
    folder: Path
    to: str

    @property
    def said(self) -> str:
        """What the relay said."""
        return (self.folder / "said").read_text()

    @contextmanager
    def relay(self, to: str | None = None, concurrency: int = 1) -> Iterator[subprocess.Popen[bytes]]:
        """A relay that drains the store, and is killed in the end."""
        pace = [*PACE, "--concurrency", str(concurrency)]
        with (self.folder / "said").open("wb") as said:
            relay = Popen(
                [*POSTROOM, "relay", "--store", self.store, "--to", to or self.to, "--drain", *pace, *TIMES],
                cwd=self.folder,
                env=dict(os.environ),
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        try:
            yield relay
        finally:
            relay.kill()
            relay.wait()

    def records(self) -> list[Record]:
        async def find() -> list[Record]:
            async with open_store(self.store) as store:
                return list(await store.ops.find(Query()))

        return asyncio.run(find())

    def published(self) -> int:
        async def count() -> int:
            async with open_store(self.store) as store:
                return (await store.ops.counts()).by_status.get("published", 0)

        return asyncio.run(count())

    def check_against(self, there: list[tuple[str, int]]) -> None:
        """What arrived against what was put, and what the store says of it."""
        check_deliveries(there)
        assert {record.status for record in self.records()} == {"published"}
        assert "Traceback" not in self.said

    def check_attempts(self) -> None:
        """Of a broker that was killed once, under load."""
        again = [record for record in self.records() if record.attempts > 1]
        assert len(again) <= IN_FLIGHT, "more attempts were spent than messages were in flight"


def fill(url: str) -> None:
    """Put all the messages, key by key in turn."""

    async def put() -> None:
        async with open_store(url) as store:
            await store.schema.migrate()
            for number in range(EACH):
                await store.outbox.put([Message("order.paid", key=f"k{key}", data=number) for key in range(KEYS)])

    asyncio.run(put())


def check_deliveries(there: list[tuple[str, int]]) -> None:
    """Nothing is lost, nothing is a ghost, and the first ones of a key are in order."""
    put = {(f"k{key}", number) for key in range(KEYS) for number in range(EACH)}
    assert set(there) - put == set(), "a ghost was delivered"
    assert put - set(there) == set(), "a message was lost"
    for key in range(KEYS):
        first = list(dict.fromkeys(number for name, number in there if name == f"k{key}"))
        assert first == list(range(EACH)), f"the order of k{key} is broken: {first}"
