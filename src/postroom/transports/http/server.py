"""The receiver as a server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from aiohttp import web
from yarl import URL

from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.http.desk import PREFETCH_DEFAULT, Desk
from postroom.transports.http.replies import problem
from postroom.urls import redact

EXAMPLE = "http://0.0.0.0:8080/hooks"
DEFAULT_PORT = 80
STOP_SECONDS = 5.0
TURNS_TO_ACCEPT = 3
"""Of the event loop: one in which the connection is accepted, one in which its transport is made, one in which it is told."""


class HttpConsumer(Desk):
    """Listen at the URL's address, and take events that are sent to its path.

    ```python
    HttpConsumer("http://0.0.0.0:8080/hooks", secrets=["whsec_…"])
    ```

    It speaks plain HTTP: have TLS ended before it.
    """

    def __init__(self, url: str, *, secrets: Sequence[str] = (), prefetch: int = PREFETCH_DEFAULT) -> None:
        super().__init__(secrets=secrets, prefetch=prefetch)
        self._url = _read_url(url)
        self._server: web.Server | None = None
        self._listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens; with a port 0 in the URL, the one that was free."""
        sockets = self._listening.sockets if self._listening is not None else ()
        return str(self._url.with_port(sockets[0].getsockname()[1]) if sockets else self._url)

    async def open(self) -> None:
        if self._listening is not None:
            return
        # A sender that hangs up cancels its handler, which is how we know.
        server = web.Server(self._handle, handler_cancellation=True)
        host, port = self._url.host, self._url.explicit_port
        port = DEFAULT_PORT if port is None else port
        try:
            self._listening = await asyncio.get_running_loop().create_server(server, host, port)
        except OSError as error:
            raise TransportUnavailable(
                f"Nobody can listen at {host}:{port}: {error.strerror or error}; end who does, or give another port."
            ) from error
        self._server = server
        await super().open()

    async def close(self) -> None:
        await super().close()
        listening, self._listening = self._listening, None
        server, self._server = self._server, None
        if listening is not None and server is not None:
            await stop_listening(listening)
            server.pre_shutdown()
            # Answers that are known by now are still sent.
            await server.shutdown(STOP_SECONDS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == self._url.path:
            answer = await self.answer(request.method, request.path, request.raw_headers, _body(request))
        else:
            answer = problem(404, f"Events are taken at {self._url.path}.")
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


async def stop_listening(listening: asyncio.Server) -> None:
    """First accept no more, then close: what asyncio accepts at that very moment would stay open, unknown to all."""
    loop = asyncio.get_running_loop()
    for door in listening.sockets:
        loop.remove_reader(door.fileno())
    for _ in range(TURNS_TO_ACCEPT):
        await asyncio.sleep(0)
    listening.close()


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    async for part in request.content.iter_any():
        yield part


def _read_url(url: str) -> URL:
    try:
        read = URL(url)
    except ValueError as error:
        raise ConfigError(f"{redact(url)} is no URL that can be read: check its host and port.") from error
    if read.scheme != "http" or not read.host or read.query_string or read.fragment or read.user or read.password:
        raise ConfigError(f"{redact(url)} is nothing to listen at; give an address and a path, like {EXAMPLE}.")
    return read
