"""These databases tell nobody of a commit: the relay polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def watch(woken: Callable[[], None]) -> None:
    """Say once that the watch stands, and then nothing; until cancelled."""
    woken()
    await asyncio.Event().wait()
