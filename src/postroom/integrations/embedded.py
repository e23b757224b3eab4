"""Work that runs inside somebody else's process: started with it, kept running, ended cleanly, and never silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any, Protocol, Self, TypeAlias

from postroom.clock import monotonic
from postroom.errors import PostroomError
from postroom.ops.health import Health
from postroom.relay.wakeup import Backoff
from postroom.text import describe, one_line

log = logging.getLogger("postroom.embedded")
AGAIN_FIRST, AGAIN_MOST = 0.5, 30.0
"""How many seconds to wait before it is started again: doubling, from the first to the most."""
STEADY_SECONDS = 60.0
"""What ran for so long was not broken by its start: the waits begin again."""
STOP_WITHIN = timedelta(seconds=10)
CANCEL_SECONDS = 1.0


class Runner(Protocol):
    """A `Relay` or a `InboxWorker`."""

    async def run(self) -> Any: ...
    def stop(self) -> None: ...


Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Runner]]
"""Makes a runner, again for each start."""


class Embedded:
    """Keeps a runner running in the current event loop: `async with embedded:`.

    Entering reads the settings, and raises ConfigError or MissingDependency for what no waiting would fix; it waits for no
    server. One that is away, tables that are missing, and a bug that ends the runner are logged, and it is started again after
    a while; `live` says how it is. Leaving stops it: what is under way is finished first, for *stop_within* at most. It may be
    entered again afterwards."""

    def __init__(
        self, what: str, prepare: Callable[[], Opening | None], *, stop_within: timedelta = STOP_WITHIN
    ) -> None:
        self.what = what
        """Who it is, in a log: "The relay"."""
        self._prepare, self._stop_within = prepare, stop_within
        self._enabled, self._stopping = True, asyncio.Event()
        self._runner: Runner | None = None
        self._task: asyncio.Task[None] | None = None
        self._trouble: str | None = None

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise PostroomError(f"{self.what} runs already: enter each of them once.")
        opening = self._prepare()
        self._enabled = opening is not None
        if opening is None:
            log.info("%s is switched off here.", self.what)
            return self
        self._stopping, self._trouble = asyncio.Event(), None
        self._task = asyncio.create_task(self._keep_running(opening), name=f"postroom: {self.what}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping.set()
        if self._runner is None:
            task.cancel()  # it waits for a server, or for its next start: nothing is under way
        else:
            self._runner.stop()
        await asyncio.wait([task], timeout=self._stop_within.total_seconds())
        if not task.done():
            log.warning("%s did not end within %s; its work in flight is repeated later.", self.what, self._stop_within)
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_SECONDS)

    def live(self) -> Health:
        """Whether it runs; and if not, why."""
        if not self._enabled:
            return Health(ok=True, why=f"{self.what} is switched off here.")
        if self._task is None:
            return Health(ok=False, why=f"{self.what} has not started, or has ended.")
        if self._trouble is not None:
            return Health(ok=False, why=self._trouble)
        return Health(ok=True, why=f"{self.what} {'runs' if self._runner else 'is starting'}.")

    async def health(self) -> Health:
        """Whether all is as it should be, in a sentence. It never raises."""
        return self.live()

    async def is_ready(self) -> bool:
        """The same, in a word."""
        return (await self.health()).ok

    async def _keep_running(self, opening: Opening) -> None:
        again = Backoff(first=AGAIN_FIRST, most=AGAIN_MOST)
        while not self._stopping.is_set():
            begin = monotonic()
            try:
                await self._run(opening)
            except Exception as exc:  # noqa: BLE001 - whatever ends it, it is told, and tried again
                if monotonic() - begin > STEADY_SECONDS:
                    again.reset()
                await self._recover(exc, again.next())

    async def _run(self, opening: Opening) -> None:
        async with opening() as runner:
            self._runner, self._trouble = runner, None
            try:
                await runner.run()
            finally:
                self._runner = None
        if not self._stopping.is_set():
            raise RuntimeError("it ended without being stopped")

    async def _recover(self, exc: Exception, seconds: float) -> None:
        """Say what happened, and wait."""
        # What Postroom raises on purpose is a sentence; anything else is a bug, of which the traceback is wanted.
        expected = isinstance(exc, PostroomError)
        said = one_line(str(exc)) if expected else describe(exc)
        self._trouble = f"{self.what} does not run: {said}"
        level = logging.WARNING if expected and exc.transient else logging.ERROR  # type: ignore[attr-defined]
        log.log(level, "%s It starts again in %g s.", self._trouble, seconds, exc_info=None if expected else exc)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
