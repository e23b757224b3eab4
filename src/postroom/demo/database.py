"""The database that the demo plays on, and its tables there: made beside what is there, and gone afterwards."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple, Self

from postroom.config.tables import TableNames
from postroom.errors import ConfigError, PostroomError, StoreUnavailable
from postroom.stores import open_store
from postroom.stores.sqlite.url import path_of
from postroom.urls import redact, split_scheme

TABLES = TableNames(prefix="postroom_demo")
_LINE = "(place {serial}, number INTEGER NOT NULL, customer TEXT NOT NULL, amount INTEGER NOT NULL)"
SCHEMA = {
    "orders": "(number INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL)",
    # Nothing here forbids a second bill: only the inbox stands against it.
    "bills": _LINE,
    "parcels": _LINE,
}


class DemoFailed(PostroomError):
    """The demo cannot go on. The text is for the person who runs it."""


class Dialect(NamedTuple):
    """What the databases write differently."""

    mark: str
    serial: str
    has_tables: str


SQLITE = Dialect(
    "?", "INTEGER PRIMARY KEY AUTOINCREMENT", "SELECT count(*) FROM sqlite_master WHERE name = 'postroom_demo'"
)
POSTGRES = Dialect(
    "%s", "INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "SELECT count(to_regclass('postroom_demo'))"
)
DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRES, "postgres": POSTGRES}


class Database:
    """Postroom's store on it, and transactions for SQL of our own. *say* is given what a person should know afterwards."""

    def __init__(self, url: str, say: Callable[[str], object] = str) -> None:
        scheme = split_scheme(url)[0]
        if scheme not in DIALECTS:
            raise ConfigError(
                f"The demo's shop cannot write to {scheme}:// (in {redact(url)}): give --store sqlite:///shop.db or "
                "postgresql://user@host/database, or leave it out."
            )
        self.url, self._say, self._dialect = url, say, DIALECTS[scheme]
        self._file = path_of(url) if self._dialect is SQLITE else None
        self.store = open_store(url, tables=TABLES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections."""
        await self.store.close()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Yield a connection of the database's own driver. Commit at the end, unless something is raised."""
        try:
            with self.store.inbox.blocking() as transaction:
                yield transaction.handle
        except Exception as exc:
            if type(exc).__module__.partition(".")[0] not in {"sqlite3", "psycopg"}:
                raise
            said = f"{exc}".partition("\n")[0]
            raise StoreUnavailable(f"The database {redact(self.url)} does not do what the demo asks: {said}.") from exc

    def sql(self, text: str) -> str:
        """Return the statement as this database reads it: `{orders}` is our table, `?` a parameter."""
        text = re.sub(r"\{(\w+)\}", lambda name: f'"{TABLES.prefix}_{name[1]}"', text)
        return text.replace("?", self._dialect.mark)

    @asynccontextmanager
    async def tables(self) -> AsyncIterator[None]:
        """The tables are there for as long as this lasts: ours, and Postroom's beside them."""
        new = self._file is not None and not self._file.exists()
        if await asyncio.to_thread(self._has_tables):
            raise DemoFailed(
                f"The tables {TABLES.prefix}… are in {redact(self.url)} already: another `postroom demo` runs there, or one "
                f"was killed; when none runs, drop them with `postroom demo --store {redact(self.url)} --clean`."
            )
        try:
            await self.store.schema.migrate()
            await self._create()
            yield
        finally:
            await (self._remove_file() if new else self.clean())

    async def clean(self) -> None:
        """Drop what the demo made, if it is there. Ours go first: who finds Postroom's tables finds all of them."""
        if await asyncio.to_thread(self._has_tables):
            await asyncio.to_thread(self._run, [f"DROP TABLE IF EXISTS {{{name}}}" for name in SCHEMA])
            await self.store.schema.drop()
            self._say(f"Dropped the tables {TABLES.prefix}… from {redact(self.url)}.")

    def _has_tables(self) -> bool:
        if self._file is not None and not self._file.exists():
            return False
        with self.transaction() as connection:
            return bool(connection.execute(self._dialect.has_tables).fetchone()[0])

    async def _create(self) -> None:
        made = [f"CREATE TABLE {{{name}}} {columns}" for name, columns in SCHEMA.items()]
        try:
            await asyncio.to_thread(self._run, [each.replace("{serial}", self._dialect.serial) for each in made])
        except StoreUnavailable as exc:
            # Without Postroom's tables there are none of ours: what is called so now is somebody else's, and stays.
            await self.store.schema.drop()
            said = f"{exc.__cause__ or exc}".partition("\n")[0].rstrip(".")
            raise DemoFailed(f"The demo cannot make its tables in {redact(self.url)}: {said}.") from exc

    def _run(self, statements: list[str]) -> None:
        with self.transaction() as connection:
            for statement in statements:
                connection.execute(self.sql(statement))

    async def _remove_file(self) -> None:
        await self.close()
        if self._file is not None:
            for ending in ("", "-wal", "-shm"):
                self._file.with_name(self._file.name + ending).unlink(missing_ok=True)
            self._say(f"Removed {self._file}, which was not there before.")
