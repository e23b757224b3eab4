"""The rights that a database user needs: one who writes and handles messages, a relay, a person who looks after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from postroom.config.tables import Part, TableNames
from postroom.stores.sql.files import backquoted

Server: TypeAlias = Literal["postgres", "mysql"]
Rights: TypeAlias = Mapping[Part, str]

READ, CHANGE, ALL = "SELECT", "SELECT, UPDATE", "SELECT, INSERT, UPDATE, DELETE"
SERVICE: Rights = {"": "INSERT", "schema": READ, "inbox": ALL, "inbox_dead": ALL}
"""Puts messages in its own transactions, and handles what an inbox receives."""
RELAY: Rights = {
    "": CHANGE,
    "lane": CHANGE,
    "claim": ALL,
    "hold": ALL,
    "relay": ALL,
    "schema": READ,
    "messages": READ,
}
"""Carries messages. It writes none."""
OPERATOR: Rights = {
    "": CHANGE,
    "lane": CHANGE,
    "claim": READ,
    "hold": ALL,
    "relay": READ,
    "schema": READ,
    "messages": READ,
    "inbox": CHANGE,
    "inbox_dead": CHANGE,
}
"""Looks, requeues and discards."""
ROLES: Mapping[str, Rights] = {
    "postroom_service": SERVICE,
    "postroom_relay": RELAY,
    "postroom_operator": OPERATOR,
}


def grants(server: Server, tables: TableNames) -> Sequence[str]:
    """A statement for each right of each role. The roles must be there."""
    return [statement for role, rights in ROLES.items() for statement in _of(server, role, rights, tables)]


def _of(server: Server, role: str, rights: Rights, tables: TableNames) -> Iterator[str]:
    if server == "postgres" and tables.schema is not None:
        yield f'GRANT USAGE ON SCHEMA "{tables.schema}" TO {role}'
    for part, right in rights.items():
        statement = f"GRANT {right} ON {tables.qualified(part)} TO {role}"
        yield backquoted(statement) if server == "mysql" else statement
