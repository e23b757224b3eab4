"""Where the tables are: a connection of the user's, in their transaction, and what each dialect asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, inspect

from postroom.config.tables import Part, TableNames
from postroom.errors import ConfigError, NotInTransaction, StoreError, StoreUnavailable
from postroom.handles.sqlalchemy import DIALECTS, commits_by_itself
from postroom.stores.sql.insert import Dialect
from postroom.stores.sql.migrations import LANES_DEFAULT, SINCE, Script, not_ours
from postroom.stores.sql.mysql_server import LOG_SETTINGS, Version, lock_name, require_safe_log, version_of

WAIT_SECONDS = 60


class SchemaConnection:
    """One outbox in one database, by one connection."""

    def __init__(self, connection: Connection, tables: TableNames) -> None:
        self.connection, self.tables = connection, tables
        self.dialect = known(connection.dialect.name, tables)
        url = connection.engine.url
        self.store = url.set(drivername=url.get_backend_name()).render_as_string()

    @cached_property
    def server(self) -> Version:
        """MariaDB's or MySQL's."""
        return version_of(str(self.value("SELECT version()")), self.store)

    def script(self, lanes: int) -> Script:
        """The migrations, as this server takes them."""
        collation = {"collation": self.server.collation} if self.dialect == "mysql" else {}
        return Script(self.dialect, self.tables, lanes, **collation)

    # ── asking ──

    def rows(self, sql: str) -> Sequence[Sequence[Any]]:
        """Run one statement as it stands: its colons and per cents are not ours to read."""
        result = self.connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
        return result.fetchall() if result.returns_rows else []

    def value(self, sql: str) -> Any:
        """The first value of the only row."""
        return self.rows(sql)[0][0]

    def named(self, part: Part) -> str:
        """A table as SQL takes it."""
        return Script(self.dialect).quoted(self.tables.qualified(part))

    def has(self, part: Part) -> bool:
        """Is there such a table, whoever made it?"""
        return bool(inspect(self.connection).has_table(self.tables.name(part), schema=self.tables.schema))

    def versions(self) -> tuple[int, int]:
        """The last step that was finished, and the last that was begun; they differ where DDL commits by itself."""
        if not self.has("schema"):
            return 0, 0
        done = " WHERE applied_at IS NOT NULL" if self.dialect == "mysql" else ""
        last = f"SELECT coalesce(max(version), 0) FROM {self.named('schema')}"  # noqa: S608 - a checked name
        return int(self.value(last + done)), int(self.value(last))

    def lanes(self, begun: int) -> int | None:
        """How many there are, or are being made."""
        if not begun:
            return None
        if self.dialect == "mysql":
            return int(self.value(f"SELECT lanes FROM {self.named('schema')} ORDER BY version LIMIT 1"))  # noqa: S608 - the same
        return int(self.value(f"SELECT count(*) FROM {self.named('lane')}")) or LANES_DEFAULT  # noqa: S608 - the same

    # ── before anything is made ──

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Whoever migrates the same tables at once, by `postroom init` or otherwise, waits until this has ended."""
        match self.dialect:
            case "postgres":
                self._require_transaction()
                self.rows(f"SELECT pg_advisory_xact_lock({crc32(self.tables.qualified().encode())})")
                yield
            case "sqlite":
                driver: Any = self.connection.connection.driver_connection
                if not driver.in_transaction:  # Python's driver begins none for a CREATE
                    self.rows("BEGIN IMMEDIATE")
                yield
            case "mysql":
                lock = lock_name(str(self.value("SELECT database()")), self.tables)
                if not self.value(f"SELECT get_lock('{lock}', {WAIT_SECONDS})"):
                    raise StoreUnavailable(
                        f"Another migration of {self.store} does not end: try again when it has ended."
                    )
                try:
                    yield
                finally:
                    self.value(f"SELECT release_lock('{lock}')")

    def require_fit(self) -> None:
        """Raise StoreError where this database cannot keep what it is given."""
        if self.dialect == "mysql":
            require_safe_log({row[0]: row[1] for row in self.rows(LOG_SETTINGS)}, self.store)
        if self.dialect == "postgres" and (encoding := self.value("SHOW server_encoding")) != "UTF8":
            raise StoreError(
                f"The database {self.store} is encoded in {encoding}; bodies are kept byte for byte only in UTF8: "
                "create it with ENCODING 'UTF8'."
            )

    def require_ours(self, begun: int) -> None:
        """Raise SchemaMismatch where a table has our name that we did not make."""
        for part, since in SINCE.items():
            if begun < since and self.has(part):
                raise not_ours(self.store, self.tables, part)

    def _require_transaction(self) -> None:
        if commits_by_itself(self.connection):
            raise NotInTransaction(
                "The SQLAlchemy connection has isolation_level AUTOCOMMIT, so the tables could be made by half: take one "
                "without it, or migrate outside of `autocommit_block()`."
            )


def known(name: str, tables: TableNames) -> Dialect:
    """Our name for a dialect of SQLAlchemy's, or ConfigError."""
    if name not in DIALECTS:
        raise ConfigError(f"Postroom has no tables for {name}; it knows {', '.join(DIALECTS)}.", dialect=name)
    if DIALECTS[name] == "sqlite" and tables.schema is not None:
        raise ConfigError(f"SQLite has no schemas: leave out the schema name {tables.schema!r}.")
    return DIALECTS[name]
