"""What the tables are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from postroom.errors import ConfigError

OUTBOX = "outbox"
NAME_MAX = 48
"""How long a table prefix or schema may be. Short enough that prefix and `_messages` stay below PostgreSQL's 63 bytes."""

Part = Literal["", "lane", "claim", "hold", "relay", "schema", "counter", "dead", "messages", "inbox", "inbox_dead"]
"""The tables: the messages themselves, what is around them, and the view that people read. `counter` and
`dead` are MongoDB's, which has no sequences, and where dead messages may have a collection of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNames:
    """What the tables are called.

    >>> TableNames(prefix="post", schema="shop").qualified("lane")
    '"shop"."post_lane"'
    """

    prefix: str = OUTBOX
    """The name of the messages' table, and the start of the others'. Default `outbox`, beside which the inbox is just
    called `inbox`; an identifier."""
    schema: str | None = None
    """The database schema they are in; an identifier. Default none: where the search path leads."""

    def __post_init__(self) -> None:
        for what, name in {"table prefix": self.prefix, "schema": self.schema}.items():
            if name is not None and not _is_identifier(name):
                raise ConfigError(
                    f"{name!r} is a {what} that is not an identifier; it must be lower-case letters, digits "
                    f"and _, {NAME_MAX} of them at most, and not start with a digit.",
                    name=name,
                )
        if f"_{self.prefix}".endswith(("_inbox", "_inbox_dead")):
            raise ConfigError(
                f"{self.prefix!r} cannot be a table prefix: the inbox beside another outbox may be called so, and who drops "
                "one would drop the other; choose one that does not end in inbox or inbox_dead.",
                name=self.prefix,
            )

    def name(self, part: Part = "") -> str:
        """Return the bare name of one table: `outbox_lane`."""
        if part.startswith("inbox") and self.prefix == OUTBOX:
            return part
        return f"{self.prefix}_{part}" if part else self.prefix

    def qualified(self, part: Part = "") -> str:
        """Return the name of one table as SQL takes it: quoted, with its schema where there is one."""
        name = f'"{self.name(part)}"'
        return f'"{self.schema}".{name}' if self.schema else name


def _is_identifier(name: str) -> bool:
    return name.isascii() and name.isidentifier() and name == name.lower() and len(name) <= NAME_MAX
