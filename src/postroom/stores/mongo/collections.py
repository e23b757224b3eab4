"""The collections by what they hold, what each part of the store is made of, and the small words of every query."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from pymongo.asynchronous.collection import AsyncCollection

from postroom.config.tables import TableNames
from postroom.errors import SchemaMismatch
from postroom.stores.mongo.connections import Connections, Document, Session
from postroom.stores.sql.migrations import missing

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
APart = TypeVar("APart", bound="Part")
DocumentCollection: TypeAlias = AsyncCollection[Document]

OPEN: Document = {"outcome": None}
"""Not settled. In MongoDB this is also true of a document that has no such field, as an open one has not."""
ASIDE: Document = {"line": "", "later": "", "behind": "", "parks": ""}
"""The fields of which a message has at most one: where it stands."""


class Collections:
    """The collections of one store."""

    def __init__(self, connections: Connections, tables: TableNames) -> None:
        self.connections, self.tables = connections, tables

    @property
    def outbox(self) -> DocumentCollection:
        return self.connections.database[self.tables.name()]

    @property
    def lane(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("lane")]

    @property
    def claim(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("claim")]

    @property
    def hold(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("hold")]

    @property
    def relay(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("relay")]

    @property
    def counter(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("counter")]

    @property
    def dead(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("dead")]

    @property
    def schema(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("schema")]

    @property
    def inbox(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("inbox")]

    @property
    def inbox_dead(self) -> DocumentCollection:
        return self.connections.database[self.tables.name("inbox_dead")]

    async def clock(self, session: Session, now: datetime | None) -> datetime:
        """This moment: the one given, or the server's. Without a zone, in UTC, as all moments are in here."""
        if now is not None:
            return bare(now)
        found = await self.lane.find_one({"_id": 0}, {"at": "$$NOW"}, session=session)
        if found is None:
            raise self.missing()
        at: datetime = found["at"]
        return at

    def missing(self) -> SchemaMismatch:
        """The error for collections that are not there."""
        return missing(self.connections.address.shown, self.tables)


class Part:
    """A part of the store. The parts of one store share its connection and its collections."""

    def __init__(self, collections: Collections) -> None:
        self.collections, self.connections = collections, collections.connections


def in_transaction(
    method: Callable[Concatenate[APart, Session, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Make a part's method run in one transaction of its own. The method takes the session first; its caller gives none.

    Where there are no transactions, the session is None. The method may run more than once."""

    @wraps(method)
    async def run(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.run(lambda session: method(part, session, *args, **kwargs))

    return run


def without_transaction(
    method: Callable[Concatenate[APart, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Make a part's method run without a transaction: it is one read, or writes that may be repeated."""

    @wraps(method)
    async def ask(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.ask(lambda: method(part, *args, **kwargs))

    return ask


def bare(moment: datetime) -> datetime:
    """The moment in UTC without its zone, which the driver writes and reads faster."""
    return moment.astimezone(UTC).replace(tzinfo=None)


def zoned(moment: datetime | None) -> datetime | None:
    """The moment with its zone, UTC, as the contracts have it."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def among(values: Collection[object]) -> Document:
    """The condition that a field has one of these values."""
    return {"$in": list(values)}


def mine(owner: str, lanes: Mapping[int, int]) -> Document:
    """The lanes of this owner at these epochs (R9, R11)."""
    by_epoch: dict[int, list[int]] = {}
    for lane, epoch in lanes.items():
        by_epoch.setdefault(epoch, []).append(lane)
    held = [{"epoch": epoch, "_id": among(of_it)} for epoch, of_it in by_epoch.items()]
    return {"owner": owner, "$or": held}
