"""Making the tables, and taking them away, on a connection of the user's."""

from __future__ import annotations

from sqlalchemy import Connection

from postroom.config.tables import TableNames
from postroom.contracts.schema import Migration
from postroom.errors import ConfigError, StoreError
from postroom.integrations.sqlalchemy.dialects import SchemaConnection
from postroom.stores.sql.insert import Dialect
from postroom.stores.sql.migrations import LANES_DEFAULT, Script, drop_statements, newest, other_lanes, pending


def migrate(
    connection: Connection, *, tables: TableNames | None = None, lanes: int | None = None, to: int | None = None
) -> Migration:
    """Bring the tables up to a version, by default the newest, in the connection's own transaction; it never commits.

    It does what `postroom init` does, with the same files and the same record, and waits for one that runs at the same time.
    What is there already stays as it is. On MariaDB and MySQL every CREATE commits by itself; what broke off is finished by
    the next call.
    """
    place = SchemaConnection(connection, tables or TableNames())
    place.require_fit()
    with place.locked():
        before, begun = place.versions()
        place.require_ours(begun)
        pending(Script(place.dialect).package, before)  # refuses tables from the future
        wanted = checked_version(place.dialect, to)
        found = place.lanes(begun)
        if lanes is not None and found not in (None, lanes):
            raise other_lanes(found or 0, lanes)
        script = place.script(found or lanes or LANES_DEFAULT)
        steps = script.between(before, wanted)
        for statement in [*(script.room() if steps else ()), *(each for step in steps for each in script.step(step))]:
            place.rows(statement)
    return Migration(before=before, after=max(before, wanted), applied=[step.name for step in steps])


def drop(connection: Connection, *, tables: TableNames | None = None, lose_messages: bool = False) -> None:
    """Take the tables away, in the connection's own transaction.

    StoreError while they hold what somebody still needs (see `needed`), unless that may be lost.
    """
    place = SchemaConnection(connection, tables or TableNames())
    with place.locked():
        if not lose_messages and (reason := needed(place)):
            raise StoreError(
                f"The tables of Postroom in {place.store} stay: there are {reason}, which would be lost with them; let a relay "
                "drain them first, or say lose_messages=True.",
                table=place.tables.name(),
            )
        for statement in drop_statements(place.tables):
            place.rows(Script(place.dialect).quoted(statement))


def needed(place: SchemaConnection) -> str:
    """What in the tables somebody still needs: messages not delivered, and the memory of what was handled."""
    found = []
    if place.has(""):
        if place.dialect == "postgres":  # nobody puts one between the look and the drop
            place.rows(f"LOCK TABLE {place.named('')} IN ACCESS EXCLUSIVE MODE")
        undelivered = f"SELECT count(*) FROM {place.named('')} WHERE settled_at IS NULL OR outcome = 'dead'"  # noqa: S608 - a checked name
        found.append((int(place.value(undelivered)), "messages that were not delivered"))
    if place.has("inbox"):
        handled = f"SELECT count(*) FROM {place.named('inbox')}"  # noqa: S608 - the same
        found.append((int(place.value(handled)), "rows of the inbox that keep messages from being handled twice"))
    return " and ".join(f"{number} {what}" for number, what in found if number)


def checked_version(dialect: Dialect, to: int | None) -> int:
    """The version asked for, or the newest; ConfigError when there is no such."""
    last = newest(Script(dialect).package)
    if to is not None and not 1 <= to <= last:
        raise ConfigError(f"This Postroom knows the tables from version 1 to {last}, not {to}.", version=to)
    return to or last
