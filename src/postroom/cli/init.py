"""`postroom init`: the tables, made or brought up to date."""

from __future__ import annotations

import asyncio
import sqlite3

import click

from postroom.cli.notes import note
from postroom.cli.options import store_options
from postroom.cli.output import write
from postroom.cli.session import Session
from postroom.config import Settings
from postroom.store import Migration
from postroom.stores import open_store


@click.command(short_help="Create the tables, or bring them up to date.")
@store_options
@click.option("--lanes", type=int, metavar="N", help="How many lanes new tables get: 1 to 1,024. Default: 64.")
def init(session: Session, lanes: int | None) -> None:
    """Create the tables in the store, or bring them up to date. Twice is the same as once.

    \b
    Examples:
      postroom init --store sqlite:///shop.db
      postroom init --store postgresql://app@db/shop --schema messaging
      postroom init --store sqlite:///shop.db --table-prefix billing --lanes 16
    """
    asyncio.run(_init(session, lanes or _chosen_lanes(session.settings)))


def _chosen_lanes(settings: Settings) -> int | None:
    """The number set in the file or the environment. The default is nobody's wish: it must not refuse other tables."""
    return None if settings.lanes == Settings().lanes else settings.lanes


async def _init(session: Session, lanes: int | None) -> None:
    async with open_store(session.url, tables=session.settings.tables, lanes=lanes) as store:
        migration = await store.migrate()
        write(_told(migration, session.shown_url, len(await store.lanes())))
        if store.capabilities.name == "sqlite":
            _warn_of_defect()


def _told(migration: Migration, url: str, lanes: int) -> str:
    before, after = migration.before, migration.after
    if before == after:
        return f"Nothing to do: the tables in {url} are at version {after}, with {lanes} lanes."
    if before == 0:
        return f"Created the tables in {url}, at version {after}, with {lanes} lanes."
    return f"Migrated the tables in {url} from version {before} to {after}: {', '.join(migration.applied)}."


def _warn_of_defect() -> None:
    from postroom.stores.sqlite.schema import WAL_RESET_FIXED, has_wal_reset_defect

    if has_wal_reset_defect():
        fixed = ".".join(map(str, WAL_RESET_FIXED))
        note(
            f"SQLite {sqlite3.sqlite_version} can corrupt a file that several processes write at once; "
            f"use {fixed} or later, or one process."
        )
