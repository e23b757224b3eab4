"""No call to a database may take longer than the lease allows: what it would answer then is of no use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from postroom.errors import StoreUnavailable

Result = TypeVar("Result")


async def within(limit: timedelta, call: Awaitable[Result]) -> Result:
    """The answer, or StoreUnavailable when it does not come in time. It may have been carried out all the same: what
    becomes of that is decided as for any answer that was lost (R21, R22)."""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            return await call
    except TimeoutError:
        raise StoreUnavailable(
            f"The store did not answer within {limit.total_seconds():g} s: look for a lock that is held, or a slow disk."
        ) from None
