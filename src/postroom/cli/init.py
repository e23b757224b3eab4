"""`postroom init`: the tables, made or brought up to date."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import asdict

import click

from postroom.cli.options import store_options
from postroom.cli.output import write, write_json
from postroom.cli.session import Session
from postroom.cli.stderr import note
from postroom.config.values import Settings
from postroom.contracts.schema import Migration
from postroom.stores import open_store
from postroom.stores.sql.grants import grants
from postroom.stores.sql.insert import Dialect
from postroom.stores.sql.migrations import Script, newest
from postroom.urls import split_scheme, without_driver


@click.command(short_help="Create the tables, or bring them up to date.")
@store_options
@click.option("--lanes", type=int, metavar="N", help="How many lanes new tables get: 1 to 1,024. Default: 64.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: the versions before and after, and the lanes."
)
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements that make the tables, and change nothing.")
@click.option(
    "--grants", "as_grants", is_flag=True, help="Print the rights that each kind of user needs, and change nothing."
)
def init(session: Session, lanes: int | None, as_json: bool, as_sql: bool, as_grants: bool) -> None:
    """Create the tables in the store, or bring them up to date. Twice is the same as once.

    Where another tool or person makes the tables, --sql prints what it runs, for new tables. --grants prints the rights of
    three roles, to be created before: postroom_service, postroom_relay and postroom_operator. No connection is made for
    either.

    \b
    Examples:
      postroom init --store sqlite:///shop.db
      postroom init --store postgresql://app@db/shop --schema messaging
      postroom init --store sqlite:///shop.db --table-prefix billing --lanes 16
      postroom init --store postgresql://app@db/shop --sql
    """
    if as_sql or as_grants:
        _print(session, lanes, as_sql=as_sql, as_grants=as_grants)
        return
    asyncio.run(_init(session, lanes or _chosen_lanes(session.settings), as_json=as_json))


SERVERS: dict[str, Dialect] = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}
"""Whose tables are made by SQL."""


def _print(session: Session, lanes: int | None, *, as_sql: bool, as_grants: bool) -> None:
    dialect = SERVERS.get(split_scheme(without_driver(session.url))[0])
    tables, statements = session.settings.tables, list[str]()
    if dialect is None or (as_grants and dialect == "sqlite"):
        what = "rights to grant" if as_grants else "statements to print"
        raise click.UsageError(f"{session.shown_url} has no {what}: leave the option out.")
    if as_sql:
        script = Script(dialect, tables, lanes or session.settings.lanes)
        statements += script.room()
        for step in script.between(0, newest(script.package)):
            statements += script.step(step)
    if as_grants and dialect != "sqlite":
        statements += grants(dialect, tables)
    for statement in statements:
        write(f"{statement};")


def _chosen_lanes(settings: Settings) -> int | None:
    """The number set in the file or the environment. The default is nobody's wish: it must not refuse other tables."""
    return None if settings.lanes == Settings().lanes else settings.lanes


async def _init(session: Session, lanes: int | None, *, as_json: bool) -> None:
    async with open_store(session.url, tables=session.settings.tables, lanes=lanes) as store:
        migration = await store.schema.migrate()
        count = len(await store.lanes.all())
        if as_json:
            write_json({**asdict(migration), "applied": list(migration.applied), "lanes": count})
        else:
            write(_told(migration, session.shown_url, count))
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
    from postroom.stores.sqlite.doctor import WAL_RESET_FIXED, has_wal_reset_defect

    if has_wal_reset_defect():
        fixed = ".".join(map(str, WAL_RESET_FIXED))
        note(
            f"SQLite {sqlite3.sqlite_version} can corrupt a file that several processes write at once; "
            f"use {fixed} or later, or one process."
        )
