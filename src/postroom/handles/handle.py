"""What `put` needs of a database handle, and what of it a type checker sees."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias

from postroom.config.tables import TableNames
from postroom.message import Message


class SyncHandle(Protocol):
    """A handle of a driver that blocks."""

    def check(self) -> None:
        """Raise NotInTransaction, with the remedy for this very handle, where a write would commit by itself."""

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, in this order, in the transaction that is open. Commits nothing, rolls nothing back."""


class AsyncHandle(Protocol):
    """A handle of a driver that is awaited."""

    def check(self) -> None:
        """Raise NotInTransaction, with the remedy for this very handle, where a write would commit by itself."""

    def write(self, messages: Sequence[Message], tables: TableNames) -> Coroutine[Any, Any, None]:
        """The same, when awaited; and checks again then, since the transaction may have ended meanwhile."""


Handle: TypeAlias = SyncHandle | AsyncHandle


# The things people hold, by shape and not by class: a union of classes would turn into Any for a type checker in any
# project that has not installed all of their drivers, and with it the answer of `put`.


class _Commits(Protocol):
    def commit(self) -> None: ...


class _CommitsAsync(Protocol):
    def commit(self) -> Awaitable[None]: ...


class _Asyncpg(Protocol):
    def is_in_transaction(self) -> bool: ...

    def execute(self, query: str, *args: Any) -> Awaitable[Any]: ...


class _Mongo(Protocol):
    def commit_transaction(self) -> None: ...


class _MongoAsync(Protocol):
    def commit_transaction(self) -> Awaitable[None]: ...


class _MongoDatabase(Protocol):
    def list_collection_names(self) -> Sequence[str]: ...


class _MongoDatabaseAsync(Protocol):
    def list_collection_names(self) -> Awaitable[Sequence[str]]: ...


class _Sync(Protocol):
    def postroom_handle(self) -> SyncHandle: ...


class _Async(Protocol):
    def postroom_handle(self) -> AsyncHandle: ...


Sync: TypeAlias = _Commits | _Mongo | _MongoDatabase | _Sync
"""sqlite3, psycopg, psycopg2, SQLAlchemy, Django, PyMongo, or a thing that brings its own handle."""
Async: TypeAlias = _CommitsAsync | _Asyncpg | _MongoAsync | _MongoDatabaseAsync | _Async
"""aiosqlite, psycopg's AsyncConnection, asyncpg, SQLAlchemy's and PyMongo's async ones, or a thing that brings its own."""
