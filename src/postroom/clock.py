"""The one place that asks the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def utcnow() -> datetime:
    """The wall clock, in UTC. For what people read; never for a lease (the database's clock decides those)."""
    return datetime.now(UTC)


def unix_ns() -> int:
    """The wall clock in nanoseconds since 1970. For ids and spans, which want a number."""
    return time.time_ns()


def monotonic() -> float:
    """Seconds that only grow, whatever happens to the wall clock. For deadlines inside one process."""
    return time.monotonic()
