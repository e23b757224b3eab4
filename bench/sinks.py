"""Where messages go that nobody wants: a function that does nothing, and a web server that answers 204."""

from __future__ import annotations

import asyncio
import threading

from postroom.message import Message

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
LENGTH = b"content-length:"


async def take(message: Message) -> None:
    """Take a message, and do nothing with it."""


def serve() -> str:
    """Start a web server in this process, which lives as long as the process; its URL."""
    port: list[int] = []
    ready = threading.Event()

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    ready.wait(30)
    return f"http://127.0.0.1:{port[0]}/"


class Sink(asyncio.Protocol):
    """One connection, kept alive: each request is read to its end and answered. No more of HTTP than the relay speaks."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).lower()
            length = int(head.partition(LENGTH)[2].partition(b"\r\n")[0] or 0)
            if len(self._buffer) < end + 4 + length:
                return
            del self._buffer[: end + 4 + length]
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(ANSWER)
