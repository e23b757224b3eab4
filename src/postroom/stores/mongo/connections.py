"""The connection to the server: made when first needed, used in transactions, its errors in our words.

Everything is written to a majority and its journal, and read as a majority has it: what is sent must not be forgotten when
another node becomes the primary.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, ConnectionFailure, InvalidURI, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from postroom.errors import ConfigError, StoreError, StoreUnavailable
from postroom.stores.connections import OURS
from postroom.stores.mongo.errors import NO_SUCH_TRANSACTION, TRANSIENT, UNKNOWN, ended, is_away, said
from postroom.stores.mongo.url import MongoUrl

Result = TypeVar("Result")
Document: TypeAlias = dict[str, Any]
Session: TypeAlias = AsyncClientSession | None
"""What a write is part of; None: nothing but itself."""
Database: TypeAlias = AsyncDatabase[Document]

MAJORITY = WriteConcern("majority", wtimeout=10_000, j=True)
SNAPSHOT = ReadConcern("snapshot")
TRANSACTION_SECONDS = 10.0
"""How long a transaction is tried again that met another one, or a new primary."""
ABORT_SECONDS = 2.0
"""How long somebody who was cancelled waits to say so; then the server finds out by itself."""
WIRE_VERSION_MIN = 13
"""MongoDB 5.0."""
WRONG_URL = (ConfigurationError, InvalidURI, ValueError)
CODECS: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_CLAMP)
"""Moments without a zone, which are in UTC and cheaper; what a stranger wrote that no clock shows becomes the nearest."""


class Contended(StoreUnavailable):
    """Another transaction holds what this one wants, and goes on holding it."""


class Connections:
    """One client of PyMongo for all parts of the store: it has a pool of its own. Sync handlers have another one beside it."""

    def __init__(self, address: MongoUrl, name: str = OURS) -> None:
        self.address, self._name = address, name
        self._client: AsyncMongoClient[Document] | None = None
        self._closed = self._known = False

    @property
    def client(self) -> AsyncMongoClient[Document]:
        """The client, made at the first use: it belongs to the loop it is first used in."""
        if self._closed:
            raise closed(self.address)
        if self._client is None:
            try:
                self._client = AsyncMongoClient(self.address.url, **self._named(), **self.address.patience)
            except WRONG_URL:
                raise no_url(self.address) from None  # what the driver says of it may quote the password
        return self._client

    def _named(self) -> dict[str, Any]:
        return {} if "appname=" in self.address.url.lower() else {"appname": self._name}

    @property
    def database(self) -> Database:
        return self.client.get_database(
            self.address.database,
            codec_options=CODECS,
            read_preference=ReadPreference.PRIMARY,
            write_concern=MAJORITY,
            read_concern=ReadConcern("majority"),
        )

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def run(
        self, work: Callable[[Session], Awaitable[Result]], *, patience: float = TRANSACTION_SECONDS
    ) -> Result:
        """Run *work* in one transaction: committed when it returns, and none of it when it raises. It may run more than
        once: when it met another transaction, or the primary changed."""
        deadline = time.monotonic() + patience
        with self.translated():
            await self._know()
            while True:
                try:
                    return await self._try(work, deadline)
                except PyMongoError as exc:
                    if not exc.has_error_label(TRANSIENT):
                        raise
                    if time.monotonic() > deadline:
                        raise self._worn_out(exc) from exc
                await asyncio.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - so that two do not meet again

    async def ask(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run *work* in no transaction: it is one read, or writes that may be repeated."""
        with self.translated():
            await self._know()
            return await work()

    async def _try(self, work: Callable[[Session], Awaitable[Result]], deadline: float) -> Result:
        async with self.transaction(deadline) as session:
            return await work(session)

    @asynccontextmanager
    async def transaction(self, deadline: float) -> AsyncIterator[Session]:
        """Yield a session in a transaction; its commit is repeated until the deadline while its outcome is unknown. Where
        there are no transactions, yield None: each write is by itself, and stays whatever comes after it."""
        if not self.address.transactions:
            yield None
            return
        session = self.client.start_session()
        try:
            await begin(session)
            yield session
            await commit(session, deadline)
        except BaseException:
            with suppress(TimeoutError):
                async with asyncio.timeout(ABORT_SECONDS):
                    if session.in_transaction:
                        await session.abort_transaction()
            raise
        finally:
            await _end(session)

    @asynccontextmanager
    async def handling(self) -> AsyncIterator[AsyncClientSession]:
        """Yield a session in a transaction for a handler, whose errors come out as they are, unless the server went away."""
        await self.open()
        session = self.client.start_session()
        try:
            await begin(session)
            try:
                yield session
            except ConnectionFailure as exc:
                # This label tells what happened to a transaction from what happened to another client of the handler's.
                if exc.has_error_label(TRANSIENT):
                    raise self.unavailable(exc) from exc
                raise
            if not session.in_transaction:
                raise ended()
            with self.translated():
                await _commit_for_a_handler(session)
        finally:
            await _end(session)

    async def open(self) -> None:
        """Reach the server, and refuse one that cannot do what is needed."""
        with self.translated():
            await self._know()

    async def _know(self) -> None:
        if self._known:
            return
        require_transactions(await self.client.admin.command("hello"), self.address)
        self._known = True

    def _worn_out(self, exc: PyMongoError) -> StoreUnavailable:
        if isinstance(exc, OperationFailure) and not isinstance(exc, ConnectionFailure):
            return Contended(
                f"MongoDB at {self.address.shown} is busy with other transactions on the same documents; try again."
            )
        return self.unavailable(exc)

    def unavailable(self, exc: PyMongoError) -> StoreUnavailable:
        """The sentence for a server that cannot be reached, or does not let us in."""
        return StoreUnavailable(
            f"MongoDB at {self.address.shown} cannot be used: {said(exc)}; check that it runs, the address, the user and the "
            "password."
        )

    def translated(self) -> _Translated:
        """`with connections.translated():` raises what the driver says in our words."""
        return _Translated(self)


class _Translated:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, PyMongoError):
            raise self._meaning(exc) from exc

    def _meaning(self, exc: PyMongoError) -> StoreError:
        if is_away(exc):
            return self._connections.unavailable(exc)
        return StoreError(f"MongoDB at {self._connections.address.shown} refuses: {said(exc)}.")


def require_transactions(hello: Document, address: MongoUrl) -> None:
    """Raise StoreError unless this is the greeting of a server that can do what is needed."""
    if hello.get("maxWireVersion", 0) < WIRE_VERSION_MIN:
        raise StoreError(f"MongoDB at {address.shown} is too old: Postroom needs 5.0 or later.")
    is_set = "setName" in hello or hello.get("msg") == "isdbgrid"
    if not is_set and address.transactions:
        raise StoreError(
            f"MongoDB at {address.shown} is a standalone server, which has no transactions: start it with "
            "--replSet rs0 and run rs.initiate() once; one node is enough. Or add postroom_transactions=off to this URL: "
            "then no message commits with your data, several are not written as one, and relays poll."
        )


def closed(address: MongoUrl) -> StoreError:
    return StoreError(f"The store at {address.shown} is closed: open it again.")


def no_url(address: MongoUrl) -> ConfigError:
    return ConfigError(
        f"{address.shown} is not a MongoDB URL: write mongodb://user:password@host:27017/shop?replicaSet=rs0, "
        "with %40 for an @ and %25 for a % in the password.",
        url=address.shown,
    )


async def begin(session: AsyncClientSession) -> None:
    """Start a transaction that reads one snapshot and writes to a majority."""
    await session.start_transaction(SNAPSHOT, MAJORITY, ReadPreference.PRIMARY)


async def commit(session: AsyncClientSession, deadline: float) -> None:
    """Commit. Repeat it until the deadline while its outcome is unknown."""
    while True:
        try:
            return await session.commit_transaction()
        except PyMongoError as exc:
            if not exc.has_error_label(UNKNOWN) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


async def _commit_for_a_handler(session: AsyncClientSession) -> None:
    try:
        await commit(session, time.monotonic() + TRANSACTION_SECONDS)
    except OperationFailure as exc:
        # The server rolls a transaction back at its first error, which a handler may have kept to itself.
        if exc.code == NO_SUCH_TRANSACTION:
            raise ended() from exc
        raise


async def _end(session: AsyncClientSession) -> None:
    """End the session. A task that was cancelled does not wait long: the server finds out by itself."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ABORT_SECONDS):
            await session.end_session()
