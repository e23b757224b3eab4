"""Connections to NATS: what is left of one that was not wanted any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from postroom.transports.nats.connection import connect
from postroom.transports.nats.url import read


async def test_who_is_told_to_stop_while_it_connects_leaves_no_socket_behind() -> None:
    waits, ended = asyncio.Event(), asyncio.Event()

    async def answers_no_ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"test","version":"2.10.0","max_payload":1048576}\r\n')
        await reader.readuntil(b"PING\r\n")
        waits.set()
        with suppress(ConnectionError):
            await reader.read()
        ended.set()
        writer.close()

    async with await asyncio.start_server(answers_no_ping, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        connecting = asyncio.create_task(connect(read(f"nats://{host}:{port}/orders"), seconds=60))
        await waits.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        async with asyncio.timeout(10):
            await ended.wait()
