"""Ctrl-C and SIGTERM: the first asks a service to end, the second ends it at once, and one that does not end in time is ended.

The signals are heard by Python itself and not by the event loop: a handler that blocks the loop must not make the process
immune to them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self

MARGIN_SECONDS = 15.0
"""So long after its grace a service may take to let go of broker and database."""
BY_SIGNAL = 128
"""A process that ended by a signal ends with this and the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""


class Ending:
    """Hears signals from `listen` on, until it is left.

    ```python
    with Ending(timedelta(seconds=30)) as ending:
        asyncio.run(serve(ending))  # which calls ending.listen(stop)
    ```
    """

    def __init__(self, grace: timedelta) -> None:
        self._most = grace.total_seconds() + MARGIN_SECONDS
        self._before: dict[int, Any] = {}
        self._overdue: threading.Timer | None = None

    def listen(self, stop: Callable[[], None]) -> None:
        """From now on the first signal calls *stop*, in the event loop that runs now."""
        loop = asyncio.get_running_loop()

        def hear(number: int, _: object) -> None:
            if self._overdue is not None:
                _end(number, "ended at once, as a second signal asked for: what was being done is not finished")
            self._overdue = threading.Timer(self._most, _end, [number, "it did not end in time, and was ended"])
            self._overdue.daemon = True
            self._overdue.start()
            with suppress(RuntimeError):  # the loop has ended by itself meanwhile
                loop.call_soon_threadsafe(stop)

        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.setdefault(number, signal.signal(number, hear))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        for number, before in self._before.items():
            signal.signal(number, before)


def _end(number: int, why: str) -> None:
    with suppress(Exception):  # a stream may be in use by whoever was interrupted
        sys.stdout.flush()
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"error: {why}.\n".encode())
    os._exit(BY_SIGNAL + number)
