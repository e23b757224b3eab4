"""Postroom on MongoDB 5.0 and later, by PyMongo: a replica set, of which one node is enough; or without transactions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Self

from postroom.config.tables import TableNames
from postroom.contracts.store import Store, StoreCapabilities
from postroom.errors import ConfigError
from postroom.stores.connections import OURS
from postroom.stores.mongo.collections import Collections
from postroom.stores.mongo.connections import Connections
from postroom.stores.mongo.inbox import MongoInbox
from postroom.stores.mongo.lanes import MongoLanes
from postroom.stores.mongo.ops import MongoOps
from postroom.stores.mongo.outbox import MongoOutbox
from postroom.stores.mongo.schema import MongoSchema
from postroom.stores.mongo.url import address


def open_store(url: str, *, tables: TableNames | None, lanes: int | None, name: str) -> Store:
    """Return the store at a URL that PyMongo understands; two options of Postroom's own may be in it."""
    return MongoStore(url, tables=tables, lanes=lanes, name=name)


class MongoStore:
    """See `postroom.contracts.store` for what each part promises. Leases are by the server's clock."""

    capabilities = StoreCapabilities(
        name="mongo",
        durable=True,
        shared=True,
        concurrent_writers=True,
        all_or_none=True,
        time_precision=timedelta(milliseconds=1),
        notices_commits=True,
        notices_relays=True,
    )

    def __init__(
        self, url: str, *, tables: TableNames | None = None, lanes: int | None = None, name: str = OURS
    ) -> None:
        tables = tables or TableNames()
        connections = Connections(address(url, tables), name)
        collections = Collections(connections, tables)
        self.schema = MongoSchema(collections, lanes)
        self.outbox = MongoOutbox(collections)
        self.lanes = MongoLanes(collections)
        self.ops = MongoOps(collections)
        self._inbox = MongoInbox(collections)
        self._connections = connections
        if not connections.address.transactions:
            self.capabilities = replace(
                self.capabilities,
                concurrent_writers=False,
                all_or_none=False,
                notices_commits=False,
                notices_relays=False,
            )

    @property
    def inbox(self) -> MongoInbox:
        address = self._connections.address
        if not address.transactions:
            raise ConfigError(
                f"The inbox on {address.shown} needs transactions, and postroom_transactions=off is in its URL: leave that "
                "out, and use a replica set; one node is enough."
            )
        return self._inbox

    async def close(self) -> None:
        await self._connections.close()
        self._inbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
