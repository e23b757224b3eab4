"""Threads for functions of strangers: one that never returns takes no place from others, and keeps no process alive.

The standard pool does both: it never gives a stuck thread up, and waits for it when the process ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

Job = Callable[[], None]


class Threads:
    """Calls functions in threads that are used again. Used from one event loop; only `_work` runs elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[Job | None]] = []
        self._awaited = self._running = 0
        self._closed = False

    @property
    def stuck(self) -> int:
        """How many calls go on that nobody waits for any more."""
        return self._running - self._awaited

    async def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """What the function returns or raises. Cancelled, it lets the call go on by itself."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        jobs = self._idle.pop() if self._idle else self._start()

        def job() -> None:
            try:
                result, error = function(argument), None
            except BaseException as exc:  # noqa: BLE001 - handed on, to be raised where it is awaited
                result, error = None, exc
            with suppress(RuntimeError):  # the loop has ended, and nobody wants to know
                loop.call_soon_threadsafe(self._end, jobs, answer, result, error)

        self._running += 1
        self._awaited += 1
        jobs.put(job)
        try:
            result, error = await answer
        finally:
            self._awaited -= 1
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the threads: the idle ones now, the others when their calls return, if ever."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _start(self) -> SimpleQueue[Job | None]:
        jobs: SimpleQueue[Job | None] = SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name=self._name, daemon=True).start()
        return jobs

    def _end(self, jobs: SimpleQueue[Job | None], answer: asyncio.Future[Any], result: Any, error: Any) -> None:
        self._running -= 1
        if self._closed:
            jobs.put(None)
        else:
            self._idle.append(jobs)
        if not answer.done():
            answer.set_result((result, error))


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
