"""The receiver as a server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial

from aiohttp import web
from yarl import URL

from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.http.open_requests import PATIENCE_DEFAULT, PREFETCH_DEFAULT, OpenRequests, problem
from postroom.urls import redact

EXAMPLE = "http://0.0.0.0:8080/hooks"
DEFAULT_PORT = 80
HEADERS_WITHIN = timedelta(seconds=10)
"""How long a connection may take to say a request's headers, and be idle between two."""
MOST_CONNECTIONS = 1_000
FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
"""What a connection is told for which there is no room."""
STOP_SECONDS = 5.0
LINGER_SECONDS = 2.0
"""For so long the rest of a body is read that nobody waits for, so that the sender reads the answer."""
TURNS_TO_ACCEPT = 3
"""Of the event loop: one in which the connection is accepted, one in which its transport is made, one in which it is told."""


class HttpConsumer(OpenRequests):
    """Listen at the URL's address, and take events that are sent to its path.

    ```python
    HttpConsumer("http://0.0.0.0:8080/hooks", secrets=["whsec_…"])
    ```

    It speaks plain HTTP: have TLS ended before it. A connection that does not finish its headers in time is ended; one that
    does not finish its body is answered 408 after *patience*, and ended.
    """

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str] = (),
        unsigned: bool = False,
        prefetch: int = PREFETCH_DEFAULT,
        patience: timedelta = PATIENCE_DEFAULT,
        headers_within: timedelta = HEADERS_WITHIN,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        super().__init__(secrets=secrets, unsigned=unsigned, prefetch=prefetch, patience=patience)
        if headers_within <= timedelta(0) or most_connections < 1:
            raise ConfigError(
                f"headers_within is {headers_within}, most_connections {most_connections}; give more than 0 for each."
            )
        self._headers_seconds, self._most = headers_within.total_seconds(), most_connections
        self._unheard: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        """Connections that have not said a request's headers yet, each with what ends it."""
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
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            keepalive_timeout=self._headers_seconds,
            lingering_time=LINGER_SECONDS,
        )
        host, port = self._url.host, self._url.explicit_port
        port = DEFAULT_PORT if port is None else port
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                partial(self._connected, server), host, port
            )
        except OSError as error:
            raise TransportUnavailable(
                f"Postroom cannot listen at {host}:{port}: {error.strerror or error}; end what has it, or give another port."
            ) from error
        self._server = server
        await super().open()

    async def close(self) -> None:
        await super().close()
        listening, self._listening = self._listening, None
        server, self._server = self._server, None
        if listening is not None and server is not None:
            await stop_listening(listening)
            for timer in self._unheard.values():
                timer.cancel()
            self._unheard.clear()
            server.pre_shutdown()
            # Answers that are known by now are still sent.
            await server.shutdown(STOP_SECONDS)

    def _connected(self, server: web.Server) -> asyncio.BaseProtocol:
        """What speaks with a new connection. aiohttp waits for the first request for an hour, or forever."""
        if len(server.connections) >= self._most:
            return _Full()
        protocol = server()

        def end() -> None:
            del self._unheard[protocol]
            protocol.force_close()

        self._unheard[protocol] = asyncio.get_running_loop().call_later(self._headers_seconds, end)
        return protocol

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if (timer := self._unheard.pop(request.protocol, None)) is not None:
            timer.cancel()
        if request.path == self._url.path:
            answer = await self.answer(request.method, request.path, request.raw_headers, _body(request))
        else:
            answer = problem(404, f"Events are taken at {self._url.path}.")
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


class _Full(asyncio.Protocol):
    """Speaks with a connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(FULL)
        transport.close()


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
    except ValueError:  # what it says may quote a password
        raise ConfigError(f"{redact(url)} is not a URL that can be read: check its host and port.") from None
    if read.scheme != "http" or not read.host or read.query_string or read.fragment or read.user or read.password:
        raise ConfigError(f"{redact(url)} is not an address to listen at; give an address and a path, like {EXAMPLE}.")
    return read
