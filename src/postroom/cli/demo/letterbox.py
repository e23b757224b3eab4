"""The way from the relay's process into ours: a loopback port that takes messages, for the broker and for the webhook.

It speaks as much HTTP as the demo needs. The `http` transport would be the right one; it needs a package that may not be there.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping

from postroom.message import Message, cloudevent, from_cloudevent

Answer = Callable[[Message], Awaitable[int]]
"""Takes a message; the HTTP status that it is answered with."""
SOURCE = "postroom-demo"
HOST = "127.0.0.1"


class Letterbox:
    """Takes messages at a port of its own, at these paths."""

    def __init__(self, paths: Mapping[str, Answer]) -> None:
        self._paths = paths
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        """Listen, at any free port, to this machine alone."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status = await self._answer(reader)
            writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, or is none of ours
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> int:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answer = self._paths.get(first.split(" ")[1])
        return 404 if answer is None else await answer(_unpacked(body))


async def post(port: int, path: str, message: Message) -> int:
    """Bring a message there; the answer's HTTP status. OSError or EOFError when there is none."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        body = _packed(message)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        return int((await reader.readuntil(b"\r\n")).split(b" ")[1])
    finally:
        writer.close()


def _packed(message: Message) -> bytes:
    body = base64.b64encode(message.body or b"").decode()
    return json.dumps({"event": cloudevent(message, SOURCE), "body": body}).encode()


def _unpacked(text: bytes) -> Message:
    said = json.loads(text)
    return from_cloudevent(said["event"], base64.b64decode(said["body"]))
