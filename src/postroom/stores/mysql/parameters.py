"""Values on their way to the server and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from postroom.stores.sql.times import EARLIEST


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of SQL of our own, which stands in for a parameter."""

    sql: str


def many(values: Iterable[Any]) -> tuple[Any, ...]:
    """A list as one parameter: `IN :values`. An empty one holds a NULL, which is equal to nothing."""
    return tuple(values) or (None,)


def listed(values: Iterable[Any]) -> str:
    """A list as a table to join from: `JSON_TABLE(:listed, …)`."""
    return json.dumps(list(values))


def pairs(lanes: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Lanes and their epochs as one parameter: `(lane, epoch) IN :pairs`. An empty one holds what no lane has."""
    return tuple(lanes.items()) or ((-1, -1),)


def text_of(moment: datetime | None) -> str | None:
    """A moment as the server reads it, in UTC."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def moment_of(text: str | bytes) -> datetime:
    """A DATETIME of ours, which is in UTC. What no datetime can hold, such as a month 0, becomes the earliest there is.

    >>> moment_of("2026-11-15 00:00:00.250000").isoformat()
    '2026-11-15T00:00:00.250000+00:00'
    """
    try:
        return datetime.fromisoformat(text if isinstance(text, str) else text.decode()).replace(tzinfo=UTC)
    except ValueError:
        return EARLIEST
