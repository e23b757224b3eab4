"""A real HTTP server on a loopback port, that keeps what it was sent and answers as it is told."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDictProxy

from postroom.message import Message

Answer = Callable[["Received"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    request: web.Request
    headers: CIMultiDictProxy[str]
    body: bytes

    def message(self) -> Message:
        """The message, as a receiver of CloudEvents reads it."""
        attributes = {name[3:].lower(): unquote(value) for name, value in self.headers.items() if name[:3] == "ce-"}
        return Message(
            attributes["type"],
            id=attributes["id"],
            key=attributes.get("subject"),
            body=self.body,
            content_type=self.headers["content-type"],
            correlation_id=attributes.get("correlationid"),
            headers={name: value for name, value in self.headers.items() if name[:2] == "x-"},
        )


async def ok(received: Received) -> web.StreamResponse:
    return web.Response(status=204)


class Receiver:
    """Start it, look at `requests`, stop it; started again it has the same port."""

    def __init__(self, answer: Answer = ok) -> None:
        self.answer = answer
        self.requests: list[Received] = []
        self.connections: set[object] = set()
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks"

    async def start(self) -> None:
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        await web.SockSite(self._runner, listening).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def messages(self) -> Sequence[Message]:
        return [received.message() for received in self.requests]

    async def _take(self, request: web.Request) -> web.StreamResponse:
        received = Received(request, request.headers, await request.read())
        assert request.transport is not None
        self.connections.add(request.transport.get_extra_info("peername"))
        response = await self.answer(received)
        self.requests.append(received)
        return response
