"""Where the demo plays: a database, spoken to as its own driver does."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from postroom.config.tables import TableNames
from postroom.contracts.store import Store
from postroom.errors import ConfigError, StoreUnavailable
from postroom.stores import open_store
from postroom.stores.sqlite.url import path_of
from postroom.urls import redact, split_scheme

TABLES = TableNames(prefix="postroom_demo")
BUSY_SECONDS = 30.0


class Dialect(NamedTuple):
    """What the databases write differently."""

    begin: str
    mark: str
    serial: str


SQLITE = Dialect("BEGIN IMMEDIATE", "?", "INTEGER PRIMARY KEY AUTOINCREMENT")
POSTGRES = Dialect("BEGIN", "%s", "INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRES, "postgres": POSTGRES}


@dataclass(frozen=True, slots=True)
class Place:
    """A database, and whether it is there for the demo alone."""

    url: str = field(repr=False)
    quiet: bool = False
    """Is it made for the demo, in a folder that nobody looks at?"""

    def __post_init__(self) -> None:
        if (scheme := split_scheme(self.url)[0]) not in DIALECTS:
            raise ConfigError(
                f"The demo's shop cannot write to {scheme}:// (in {redact(self.url)}): give --store sqlite:///shop.db or "
                "postgresql://user@host/database, or leave it out."
            )

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[split_scheme(self.url)[0]]

    def open(self) -> Store:
        """A store on it. It connects at its first use."""
        return open_store(self.url, tables=TABLES)

    def connect(self) -> Any:
        """A connection of the database's own driver, on which a transaction is begun by hand. Any thread may use it."""
        if self.dialect is SQLITE:
            path = path_of(self.url)
            return sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False)
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def sql(self, text: str) -> str:
        """The statement as this database reads it: `{orders}` is our table, `?` a parameter."""
        text = re.sub(r"\{(\w+)\}", lambda name: f'"{TABLES.prefix}_{name[1]}"', text)
        return text.replace("?", self.dialect.mark)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Whatever the driver raises meanwhile is said in a sentence."""
        try:
            yield
        except Exception as exc:
            if type(exc).__module__.partition(".")[0] not in {"sqlite3", "psycopg"}:
                raise
            said = f"{exc}".partition("\n")[0]
            raise StoreUnavailable(f"The database {redact(self.url)} does not do what the demo asks: {said}.") from exc

    @contextmanager
    def transaction(self, connection: Any) -> Iterator[None]:
        """Commits at its end, unless something is raised."""
        connection.execute(self.dialect.begin)
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
