"""Where `postroom bench` measures: in tables of its own, that are gone afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from postroom.cli.session import Session
from postroom.cli.stderr import say
from postroom.config.tables import NAME_MAX, TableNames
from postroom.contracts.store import Store
from postroom.errors import SchemaMismatch
from postroom.stores import open_store
from postroom.stores.sqlite.url import path_of
from postroom.urls import redact, split_scheme

PREFIX = "postroom_bench"


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and what our tables in it are called."""

    url: str = field(repr=False)
    tables: TableNames

    @classmethod
    def of(cls, session: Session) -> Place:
        """The session's store, with names that no outbox has."""
        tables = session.settings.tables
        return cls(session.url, replace(tables, prefix=f"{PREFIX}_{tables.prefix}"[:NAME_MAX]))

    @property
    def shown_url(self) -> str:
        return redact(self.url)

    @property
    def file(self) -> Path | None:
        """The file, if it is SQLite's."""
        return path_of(self.url) if split_scheme(self.url)[0] == "sqlite" else None

    def open(self) -> Store:
        """A store on it. It connects at its first use."""
        return open_store(self.url, tables=self.tables)

    @asynccontextmanager
    async def stores(self) -> AsyncIterator[tuple[Store, Store, Store]]:
        """Three of them, for a relay, its heartbeat and a producer; the tables are there for as long as this lasts."""
        store = self.open()
        if not store.capabilities.shared:  # in memory: there are no tables, and no second one sees the messages
            yield store, store, store
            return
        async with self._tables(), store, self.open() as heartbeat, self.open() as producer:
            yield store, heartbeat, producer

    async def clean(self) -> None:
        """Drop what a run left behind that was killed."""
        await self._drop()
        say(f"Dropped {self.tables.prefix} and the tables that belong to it from {self.shown_url}, if they were there.")

    @asynccontextmanager
    async def _tables(self) -> AsyncIterator[None]:
        new = self.file is not None and not self.file.exists()
        if not new:
            await self._refuse_what_is_there()
        try:
            async with self.open() as store:
                await store.schema.migrate()
            say(
                f"Measuring in {self.shown_url}, in tables of its own: {self.tables.prefix} and the tables that belong to it."
            )
            yield
        finally:
            if new:
                self._remove_file()
            else:
                await self._drop()
                say(f"Dropped {self.tables.prefix} and the tables that belong to it.")

    async def _refuse_what_is_there(self) -> None:
        """Another run's tables are not ours to fill, nor to drop."""
        async with self.open() as store:
            try:
                await store.schema.check()
            except SchemaMismatch:
                return
        raise click.ClickException(
            f"{self.tables.prefix} is in {self.shown_url} already: another `postroom bench` runs there, or one was killed; "
            "when none runs, drop its tables with `postroom bench --clean`"
        )

    async def _drop(self) -> None:
        async with self.open() as store:
            await store.schema.drop()

    def _remove_file(self) -> None:
        if self.file is not None and self.file.exists():
            for ending in ("", "-wal", "-shm"):
                self.file.with_name(self.file.name + ending).unlink(missing_ok=True)
            say(f"Removed {self.file}, which was not there before.")
