"""What a store does with its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What `migrate` did."""

    before: int
    after: int
    applied: Sequence[str] = field(default=())


class SchemaStore(Protocol):
    """The tables: made, brought up to date, checked."""

    async def migrate(self) -> Migration:
        """Create the tables, or bring them up to date. A second call changes nothing; of two calls at once, one waits.

        Raises SchemaMismatch when they are newer than this Postroom, or were made with another number of lanes."""

    async def check(self) -> None:
        """Raise SchemaMismatch, with the command to type, unless the tables are exactly what this Postroom needs."""

    async def drop(self) -> None:
        """Drop the tables, with everything in them. A table that is not there is no error."""
