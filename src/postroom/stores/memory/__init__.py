"""A store that forgets everything when the process ends, and keeps every other promise: for tests and for trying things out."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from postroom.config.tables import TableNames
from postroom.contracts.inbox import InboxStore
from postroom.contracts.store import Store, StoreCapabilities
from postroom.errors import ConfigError
from postroom.stores.memory.outbox import LANES_DEFAULT, MemoryOutbox


def open_store(url: str, *, tables: TableNames | None, lanes: int | None, name: str) -> Store:  # noqa: ARG001 - it has no server
    """Return a new, empty store."""
    return MemoryStore(lanes=lanes or LANES_DEFAULT)


class MemoryStore:
    """See `postroom.contracts.store` for what each part promises."""

    capabilities = StoreCapabilities(
        name="memory",
        durable=False,
        shared=False,
        concurrent_writers=True,
        all_or_none=True,
        time_precision=timedelta(microseconds=1),
        notices_commits=True,
        notices_relays=True,
    )

    def __init__(self, outbox: MemoryOutbox | None = None, *, lanes: int = LANES_DEFAULT) -> None:
        self.outbox = self.lanes = self.ops = self.schema = outbox or MemoryOutbox(lanes)

    @property
    def inbox(self) -> InboxStore:
        raise ConfigError("There is no inbox on memory://: use sqlite://, postgresql://, mysql:// or mongodb://.")

    async def close(self) -> None:
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
