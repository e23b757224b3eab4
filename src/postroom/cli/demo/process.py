"""The director's side of the relay's process: started, listened to, told, killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

import click

from postroom.cli.demo.faults import Orders

STOP_SECONDS = 20.0
"""How long a relay may take to hand back its lanes; then it is killed."""
HEARD_MAX = 50


class RelayProcess:
    """A relay in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self.name, self.pid = name, process.pid
        self.heard: deque[str] = deque(maxlen=HEARD_MAX)
        """Its last lines."""
        self._process = process
        self._listening = asyncio.create_task(self._listen())
        self._wanted = False

    @classmethod
    async def start(cls, orders: Orders) -> RelayProcess:
        """A new one. In a session of its own, so that Ctrl-C at the terminal reaches the director alone."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "postroom.cli.demo.relay",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=_environment(),
        )  # fmt: skip
        started = cls(process, orders.name)
        await started.tell(**asdict(orders))
        return started

    async def tell(self, **orders: object) -> None:
        """Change its orders."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(json.dumps(orders).encode() + b"\n")
                await self._process.stdin.drain()

    def check(self) -> None:
        """Raise when it ended, and nobody asked it to."""
        if self._process.returncode is not None and not self._wanted:
            last = self.heard[-1] if self.heard else f"exit code {self._process.returncode}"
            raise click.ClickException(f"The relay of the demo ended by itself: {last}")

    async def kill(self) -> None:
        """kill -9: no goodbye."""
        await self._end(SIGKILL)

    async def stop(self) -> None:
        """Ask it to end, and wait; in the end it is gone in any case."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._end(SIGTERM)
        finally:
            await self._end(SIGKILL)
            self._listening.cancel()

    async def _end(self, signal: Signals) -> None:
        self._wanted = True
        with suppress(ProcessLookupError):
            self._process.send_signal(signal)
        await self._process.wait()

    async def _listen(self) -> None:
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                self.heard.append(line.decode(errors="replace").strip())


def _environment() -> dict[str, str]:
    """Ours, and from where this process imports: not what stands in the folder by chance."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path)}
