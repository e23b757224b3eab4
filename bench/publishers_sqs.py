"""SQS (moto's server): our publisher in batches of 1,000 beside the AWS library's own `send_message_batch`, at its fastest.

The base has its entries ready and knows no keys, no order and no outcomes: it sends tens, as many at once as we do, and looks
whether any was refused. The server is the slower half of both, so a new queue takes each slice.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from tests.servers import Server, start
from tests.servers.queues import fresh_queue, with_queue
from tests.servers.run import Run
from tests.servers.sqs import CREDENTIALS

from bench.messages import messages
from bench.process import Process
from bench.table import Row, progress, ratio, take_turns
from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.transports.sqs import SqsPublisher
from postroom.transports.sqs.batch import AT_ONCE
from postroom.transports.sqs.connection import SqsConnection
from postroom.transports.sqs.encoding import ATTRIBUTES, body_of, group_of
from postroom.transports.sqs.url import is_fifo, read

TARGET = 0.7
BATCH = 1_000
TEN = 10


def rows(quick: bool) -> Iterator[Row]:
    """A row for a FIFO queue, and one for a standard queue."""
    number, rounds = (100, 1) if quick else (BATCH, 5)
    os.environ.update({name: value for name, value in CREDENTIALS.items() if name not in os.environ})
    progress("starting moto")
    run = Run.create()
    try:
        server = start("sqs", run=run)
        yield from (_row(server, number, rounds, fifo=fifo) for fifo in (True, False))
    finally:
        run.close()


def _row(server: Server, number: int, rounds: int, *, fifo: bool) -> Row:
    what = f"publish {number:,} to {'a FIFO' if fifo else 'a standard'} queue (moto {server.version})"

    def rate(process: Process, send: Callable[[str, str, int], float]) -> float:
        with fresh_queue(server.url, fifo=fifo) as queue:
            return number / process.call(send, server.url, queue, number)

    with Process() as base, Process() as ours:
        pairs = take_turns(what, lambda: rate(base, bare), lambda: rate(ours, published), rounds=rounds)
    return Row(what=what, base="send_message_batch", ours="publish", unit="msg/s", target=TARGET, **ratio(pairs))


def published(url: str, queue: str, number: int) -> float:
    """Ours: how long one batch takes."""

    async def send(batch: Sequence[Message]) -> float:
        publisher = SqsPublisher(with_queue(url, queue))
        await publisher.open()
        envelopes = [Envelope(message) for message in batch]
        begin = time.perf_counter()
        outcomes = await publisher.publish(envelopes, timeout=timedelta(minutes=5))
        seconds = time.perf_counter() - begin
        await publisher.close()
        if not all(isinstance(outcome, Sent) for outcome in outcomes):
            raise AssertionError("not all were sent")
        return seconds

    return asyncio.run(send(messages(number)))


def bare(url: str, queue: str, number: int) -> float:
    """The base: the same entries, made before the time begins."""
    fifo = is_fifo(queue)
    entries = [_entry(message, fifo=fifo) for message in messages(number)]
    tens = [entries[begin : begin + TEN] for begin in range(0, number, TEN)]

    async def send() -> float:
        client = await SqsConnection(read(url), connections=AT_ONCE).open()
        place = (await client.queue(queue)).url  # and so it is connected, as ours is
        turn = iter(tens)

        async def work() -> None:
            for some in turn:
                answer = await client.sqs.send_message_batch(QueueUrl=place, Entries=some)
                if answer.get("Failed"):
                    raise AssertionError("not all were sent")

        begin = time.perf_counter()
        await asyncio.gather(*[work() for _ in range(AT_ONCE)])
        seconds = time.perf_counter() - begin
        await client.close()
        return seconds

    return asyncio.run(send())


def _entry(message: Message, *, fifo: bool) -> dict[str, Any]:
    entry = {"Id": message.id_text, "MessageBody": body_of(message, "postroom"), "MessageAttributes": ATTRIBUTES}
    return entry | ({"MessageGroupId": group_of(message), "MessageDeduplicationId": message.id_text} if fifo else {})
