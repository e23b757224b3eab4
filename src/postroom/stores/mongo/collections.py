"""The collections by what they hold, and the small words that every query of them is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from pymongo.asynchronous.collection import AsyncCollection

from postroom.config.tables import TableNames
from postroom.stores.mongo.server import Document, Server, Session

Collections: TypeAlias = AsyncCollection[Document]

OPEN: Document = {"outcome": None}
"""Not settled. In MongoDB this is also true of a document that has no such field, as an open one has not."""
ASIDE: Document = {"line": "", "later": "", "behind": "", "parks": ""}
"""The fields of which a message has at most one: where it stands."""


class CollectionNames:
    """The collections of one store."""

    def __init__(self, server: Server, tables: TableNames) -> None:
        self.server, self.tables = server, tables

    @property
    def outbox(self) -> Collections:
        return self.server.database[self.tables.name()]

    @property
    def lane(self) -> Collections:
        return self.server.database[self.tables.name("lane")]

    @property
    def claim(self) -> Collections:
        return self.server.database[self.tables.name("claim")]

    @property
    def hold(self) -> Collections:
        return self.server.database[self.tables.name("hold")]

    @property
    def relay(self) -> Collections:
        return self.server.database[self.tables.name("relay")]

    @property
    def counter(self) -> Collections:
        return self.server.database[self.tables.name("counter")]

    @property
    def dead(self) -> Collections:
        return self.server.database[self.tables.name("dead")]

    @property
    def schema(self) -> Collections:
        return self.server.database[self.tables.name("schema")]

    @property
    def inbox(self) -> Collections:
        return self.server.database[self.tables.name("inbox")]

    @property
    def inbox_dead(self) -> Collections:
        return self.server.database[self.tables.name("inbox_dead")]

    async def clock(self, session: Session, now: datetime | None) -> datetime:
        """This moment: the one given, or the server's. Without a zone, in UTC, as all moments are in here."""
        if now is not None:
            return bare(now)
        found = await self.lane.find_one({"_id": 0}, {"at": "$$NOW"}, session=session)
        if found is None:
            from postroom.stores.sql.migrations import missing

            raise missing(self.server.address.shown, self.tables)
        at: datetime = found["at"]
        return at


def bare(moment: datetime) -> datetime:
    """The moment in UTC without its zone, which the driver writes and reads faster."""
    return moment.astimezone(UTC).replace(tzinfo=None)


def zoned(moment: datetime | None) -> datetime | None:
    """The other way."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def among(values: Collection[object]) -> Document:
    return {"$in": list(values)}


def mine(owner: str, lanes: Mapping[int, int]) -> Document:
    """The lanes of this owner at these epochs (R9, R11)."""
    by_epoch: dict[int, list[int]] = {}
    for lane, epoch in lanes.items():
        by_epoch.setdefault(epoch, []).append(lane)
    held = [{"epoch": epoch, "_id": among(of_it)} for epoch, of_it in by_epoch.items()]
    return {"owner": owner, "$or": held}
