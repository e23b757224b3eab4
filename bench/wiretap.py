"""A wire to PostgreSQL that counts what goes over it: every statement a client has the server run, and nothing else.

The server has no list of statements without an extension, and its own counters know transactions only.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

STARTUP = 196_608
"""The number of the message that begins a session. Others without a type byte ask for encryption, and come before it."""
FRAMING = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})


class Wiretap:
    """Listens on a port of its own and passes everything on, byte for byte."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.statements: Counter[str] = Counter()
        """By their first word."""
        self._sessions: set[asyncio.Task[None]] = set()

    @property
    def queries(self) -> int:
        """How many, without those that only begin and end a transaction."""
        return sum(number for word, number in self.statements.items() if word not in FRAMING)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user = f"{self._parts.username}@" if self._parts.username else ""
        self.url = self._parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        # A session ends by itself when its client has gone.
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=10)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.create_task(self._pass_on(reader, writer))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        session = Session(self.statements)
        with suppress(ConnectionError):
            await asyncio.gather(_pump(reader, forth, session), _pump(back, writer, None))


class Session:
    """Reads what one client says."""

    def __init__(self, counter: Counter[str]) -> None:
        self._counter = counter
        self._unread = b""
        self._started = False
        self._prepared: dict[bytes, bytes] = {}
        self._bound: dict[bytes, bytes] = {}

    def hear(self, data: bytes) -> None:
        """Take the next bytes; count what is complete."""
        self._unread += data
        while message := self._next():
            self._count(*message)

    def _next(self) -> tuple[bytes, bytes] | None:
        head = 1 if self._started else 0
        if len(self._unread) < head + 4:
            return None
        (size,) = struct.unpack_from("!I", self._unread, head)
        if len(self._unread) < head + size:
            return None
        kind, body = self._unread[:head], self._unread[head + 4 : head + size]
        self._unread = self._unread[head + size :]
        return kind, body

    def _count(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"":
                self._started = struct.unpack_from("!I", body)[0] == STARTUP
            case b"Q":
                self._note(body)
            case b"P":
                name, text, _ = body.split(b"\0", 2)
                self._prepared[name] = text
            case b"B":
                portal, name, _ = body.split(b"\0", 2)
                self._bound[portal] = self._prepared.get(name, b"?")
            case b"E":
                self._note(self._bound.get(body.split(b"\0", 1)[0], b"?"))

    def _note(self, text: bytes) -> None:
        lines = (line for line in text.rstrip(b"\0").decode(errors="replace").splitlines() if line.strip())
        first = next((line for line in lines if not line.lstrip().startswith("--")), "?")
        self._counter[first.split()[0].rstrip(";").upper()] += 1


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: Session | None) -> None:
    try:
        while data := await reader.read(65_536):
            if session is not None:
                session.hear(data)
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
