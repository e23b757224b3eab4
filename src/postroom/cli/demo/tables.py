"""The demo's tables: made beside what is there, and gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NoReturn

import click

from postroom.cli.demo.place import SQLITE, TABLES, Place
from postroom.cli.stderr import say
from postroom.stores import drop_tables, sqlite_path
from postroom.urls import redact

_LINE = "(place {serial}, number INTEGER NOT NULL, customer TEXT NOT NULL, amount INTEGER NOT NULL)"
SCHEMA = {
    "orders": "(number INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL)",
    # Nothing here forbids a second bill: only the inbox stands against it.
    "bills": _LINE,
    "parcels": _LINE,
    "deliveries": "(place {serial}, consumer TEXT NOT NULL, id TEXT NOT NULL)",
}


@asynccontextmanager
async def tables_of(place: Place) -> AsyncIterator[None]:
    """The tables are there for as long as this lasts: ours, and Postroom's beside them."""
    file = sqlite_path(place.url) if place.dialect is SQLITE else None
    new = file is not None and not file.exists()
    if await asyncio.to_thread(_is_there, place):
        _refuse(place)
    try:
        async with place.open() as store:
            await store.migrate()
        await _create(place)
        yield
    finally:
        if new and file is not None:
            _remove(place, file)
        else:
            await clean(place)


async def clean(place: Place) -> None:
    """Drop what the demo made, if it is there. Ours go first: who finds Postroom's tables finds all of them."""
    if await asyncio.to_thread(_is_there, place):
        with place.answering(), closing(place.connect()) as connection, place.transaction(connection):
            for name in SCHEMA:
                connection.execute(place.sql(f"DROP TABLE IF EXISTS {{{name}}}"))
        await drop_tables(place.url, TABLES)
        say(f"Dropped the tables {TABLES.prefix}… from {redact(place.url)}.")


async def _create(place: Place) -> None:
    try:
        with closing(place.connect()) as connection, place.transaction(connection):
            for name, columns in SCHEMA.items():
                made = columns.format(serial=place.dialect.serial)
                connection.execute(place.sql(f"CREATE TABLE {{{name}}} {made}"))
    except Exception as exc:
        # Without Postroom's tables there are none of ours: what is called so now is somebody else's, and stays.
        await drop_tables(place.url, TABLES)
        said = f"{type(exc).__name__}: {exc}".splitlines()[0]
        raise click.ClickException(f"The demo cannot make its tables in {redact(place.url)} ({said})") from exc


def _is_there(place: Place) -> bool:
    """Are there tables of a demo?"""
    if place.dialect is SQLITE and not sqlite_path(place.url).exists():  # connecting would make it
        return False
    with place.answering(), closing(place.connect()) as connection:
        try:
            connection.execute('SELECT 1 FROM "postroom_demo"')
        except Exception:  # noqa: BLE001 - each driver has its own; whatever else is wrong is told by who writes first
            return False
    return True


def _refuse(place: Place) -> NoReturn:
    raise click.ClickException(
        f"The tables {TABLES.prefix}… are in {redact(place.url)} already: another `postroom demo` runs there, or one was "
        f"killed; when none runs, drop them with `postroom demo --store {redact(place.url)} --clean`"
    )


def _remove(place: Place, file: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    if not place.quiet:
        say(f"Removed {file}, which was not there before.")
