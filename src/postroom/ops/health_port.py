"""A port for probes: `/livez` and `/readyz`, over a few lines of HTTP/1.1, so that it needs no library."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Self

from postroom.errors import PostroomError
from postroom.ops.health import Health
from postroom.urls import HostPort

REQUEST_MAX = 8 * 1024
"""How many bytes a request may have; a probe has a few hundred."""
REQUEST_SECONDS = 5.0
"""How long one request may take, from the connection to the answer."""


class HealthPort:
    """Answers probes while it is open: `async with HealthPort(address, live=…, ready=…) as port:`."""

    def __init__(
        self, address: HostPort, *, live: Callable[[], Health], ready: Callable[[], Awaitable[Health]]
    ) -> None:
        self.address = address
        """Where it listens; once open, with the port that was free."""
        self._live, self._ready = live, ready
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._accept, *self.address, limit=REQUEST_MAX)
        except OSError as exc:
            # With an errno it is the socket's own sentence; a name that is none has the resolver's.
            said = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else str(exc.strerror)
            raise PostroomError(
                f"The health port {self.address} cannot be opened: {said}; choose another, or end what has it."
            ) from exc
        self.address = self.address._replace(port=self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        try:
            # Whoever went away, or sends nothing, is not worth a word. Nor is that we end: some Pythons log a cancelled task.
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too large.")
        match head.split(b"\r\n", 1)[0].split():
            case [b"GET" | b"HEAD" as method, target, version] if version.startswith(b"HTTP/1."):
                status, why = await self._look(target.partition(b"?")[0])
                return _response(status, why, with_body=method == b"GET")
            case [_, _, version] if version.startswith(b"HTTP/1."):
                return _response(HTTPStatus.METHOD_NOT_ALLOWED, "Ask with GET or HEAD.")
        return _response(HTTPStatus.BAD_REQUEST, "That is not a request of HTTP/1.1.")

    async def _look(self, path: bytes) -> tuple[HTTPStatus, str]:
        match path:
            case b"/livez":
                health = self._live()
            case b"/readyz":
                health = await self._ready()
            case _:
                return HTTPStatus.NOT_FOUND, "There are /livez and /readyz."
        return (HTTPStatus.OK if health.ok else HTTPStatus.SERVICE_UNAVAILABLE), health.why


def _response(status: HTTPStatus, why: str, *, with_body: bool = True) -> bytes:
    body = json.dumps({"ok": status is HTTPStatus.OK, "why": why}).encode() + b"\n"
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET, HEAD")
    return "\r\n".join([*head, "", ""]).encode() + (body if with_body else b"")
