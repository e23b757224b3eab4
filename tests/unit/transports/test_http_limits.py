"""A receiver of webhooks ends what does not finish, and has room for no more than so many; honest senders go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from yarl import URL

from postroom.contracts.transport import Envelope, Outcome, Sent
from postroom.errors import ConfigError
from postroom.message import Message
from postroom.transports.http import HttpConsumer, HttpPublisher

SECOND = timedelta(seconds=1)
SHORT = 2 * SECOND  # an honest sender on a busy machine has its headers out by then
HEADERS = b"POST /hooks HTTP/1.1\r\nhost: x\r\nce-id: 1\r\nce-type: a\r\nce-source: b\r\n"
PATIENCE_SECONDS = 30


@asynccontextmanager
async def receiving(**options: Any) -> AsyncIterator[HttpConsumer]:
    """A receiver that listens, and acknowledges all that comes."""
    consumer = HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True, **options)
    await consumer.open()

    async def handle() -> None:
        while True:
            await consumer.ack(await consumer.receive(10, wait=SECOND))

    handling = asyncio.create_task(handle())
    try:
        yield consumer
    finally:
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)
        await consumer.close()


async def connected(consumer: HttpConsumer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = URL(consumer.url)
    return await asyncio.open_connection(url.host, url.port)


async def trickle(consumer: HttpConsumer, *, before: bytes = b"", then: bytes = b"x") -> bytes:
    """Send one byte after the other and never end; what was answered when the receiver had enough."""
    reader, writer = await connected(consumer)

    async def send() -> None:
        with suppress(OSError):
            writer.write(before)
            while True:
                writer.write(then)
                await writer.drain()
                await asyncio.sleep(0.1)

    sending = asyncio.create_task(send())
    try:
        with suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await reader.read()
        return b""
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()


async def honest(consumer: HttpConsumer, number: int = 5) -> list[Outcome]:
    publisher = HttpPublisher(consumer.url)
    await publisher.open()
    batch = [Envelope(Message("order.paid", key=str(each))) for each in range(number)]
    outcomes = await publisher.publish(batch, timeout=20 * SECOND)
    await publisher.close()
    return list(outcomes)


async def test_connections_that_do_not_finish_their_headers_are_ended_while_an_honest_sender_goes_on() -> None:
    async with receiving(headers_within=SHORT) as consumer:
        slow = [asyncio.create_task(trickle(consumer, before=HEADERS)) for _ in range(50)]
        silent = asyncio.create_task(trickle(consumer, then=b""))
        assert {type(outcome) for outcome in await honest(consumer)} == {Sent}
        assert set(await asyncio.gather(*slow, silent)) == {b""}
        assert {type(outcome) for outcome in await honest(consumer)} == {Sent}


async def test_a_second_request_on_a_connection_has_no_longer_than_the_first() -> None:
    whole = HEADERS + b"content-length: 0\r\n\r\n"
    async with receiving(headers_within=SHORT) as consumer:
        answered = await trickle(consumer, before=whole + HEADERS, then=b"x")
    assert answered.startswith(b"HTTP/1.1 204")
    assert answered.count(b"HTTP/1.1") == 1


async def test_a_body_that_does_not_end_is_answered_and_its_connection_ended() -> None:
    async with receiving(headers_within=SHORT, patience=SHORT) as consumer:
        begun = HEADERS + b"content-length: 100000\r\n\r\n"
        bodies = [asyncio.create_task(trickle(consumer, before=begun)) for _ in range(5)]
        assert {type(outcome) for outcome in await honest(consumer)} == {Sent}
        for answered in await asyncio.gather(*bodies):
            assert answered.startswith(b"HTTP/1.1 408")


async def test_a_handler_may_take_longer_than_headers_may() -> None:
    consumer = HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True, headers_within=SHORT)
    await consumer.open()
    sending = asyncio.create_task(honest(consumer, 1))
    taken = await consumer.receive(1, wait=10 * SECOND)
    await asyncio.sleep(2 * SHORT.total_seconds())
    await consumer.ack(taken)
    assert await sending == [Sent(204)]
    await consumer.close()


async def test_more_connections_than_there_is_room_for_are_told_to_come_again() -> None:
    async with receiving(most_connections=3) as consumer:
        held = [await connected(consumer) for _ in range(3)]
        while consumer._server is None or len(consumer._server.connections) < 3:
            await asyncio.sleep(0.01)
        reader, writer = await connected(consumer)
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        for _, each in held:
            each.close()
        while len(consumer._server.connections):
            await asyncio.sleep(0.01)
        assert await honest(consumer, 1) == [Sent(204)]


@pytest.mark.parametrize("wrong", [{"headers_within": timedelta(0)}, {"most_connections": 0}])
def test_a_limit_of_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give more than 0"):
        HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True, **wrong)
