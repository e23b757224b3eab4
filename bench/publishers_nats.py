"""The NATS publisher against the client library's own fastest confirmed way: `publish_async`, all answers awaited together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import timedelta

import nats
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from tests.servers import start
from tests.servers.run import Run

from bench.messages import messages
from bench.process import Process
from bench.table import Row, progress, ratio, take_turns
from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.transports.nats import NatsPublisher
from postroom.transports.nats.encoding import Encoding

TARGET = 0.7
BATCH = 1_000
STREAM, SUBJECT = "BENCH", "bench.paid"
TIMEOUT = timedelta(seconds=60)


def rows(quick: bool) -> Iterator[Row]:
    """With keys that are each there once in a batch; and, for information, with each twice: then the second waits for the
    first, which the library does not."""
    number, rounds = (2_000, 1) if quick else (20_000, 5)
    run = Run.create()
    try:
        progress("starting NATS")
        server = start("nats", run=run)
        with Process() as base, Process() as ours:
            for keys, target in ((BATCH, TARGET), (BATCH // 2, None)):
                what = f"publish {number:,} to NATS {server.version}, batches of {BATCH:,} over {keys:,} keys"
                pairs = take_turns(
                    what,
                    lambda keys=keys: number / base.call(bare, server.url, number, keys),  # type: ignore[misc]
                    lambda keys=keys: number / ours.call(postroom, server.url, number, keys),  # type: ignore[misc]
                    rounds=rounds,
                )
                rates = ratio(pairs)
                yield Row(what=what, base="publish_async", ours="NatsPublisher", unit="/s", target=target, **rates)
    finally:
        run.close()


def bare(url: str, number: int, keys: int) -> float:
    """The seconds it takes with the library alone: the same subject, headers and bodies, made beforehand."""
    binding = Encoding("postroom", STREAM)
    made = [(message.body or b"", binding.headers_of(message, SUBJECT)) for message in messages(number, keys)]

    async def publish() -> float:
        client = await nats.connect(url)
        js = client.jetstream()
        await _fresh(js)
        begin = time.perf_counter()
        for first in range(0, number, BATCH):
            batch = made[first : first + BATCH]
            answers = [await js.publish_async(SUBJECT, body, headers=headers) for body, headers in batch]
            await asyncio.gather(*answers)
        seconds = time.perf_counter() - begin
        await _check(js, number)
        await client.close()
        return seconds

    return asyncio.run(publish())


def postroom(url: str, number: int, keys: int) -> float:
    """The same by Postroom's publisher, from the messages."""
    logging.getLogger("postroom").setLevel(logging.ERROR)
    made: list[Message] = messages(number, keys)

    async def publish() -> float:
        client = await nats.connect(url)
        js = client.jetstream()
        await _fresh(js)
        publisher = NatsPublisher(f"{url}/{STREAM}?subject={SUBJECT}")
        await publisher.open()
        begin = time.perf_counter()
        for first in range(0, number, BATCH):
            batch = [Envelope(message) for message in made[first : first + BATCH]]
            outcomes = await publisher.publish(batch, timeout=TIMEOUT)
            assert all(type(outcome) is Sent for outcome in outcomes)
        seconds = time.perf_counter() - begin
        await publisher.close()
        await _check(js, number)
        await client.close()
        return seconds

    return asyncio.run(publish())


async def _fresh(js: JetStreamContext) -> None:
    for found in await js.streams_info():
        await js.delete_stream(str(found.config.name))
    await js.add_stream(StreamConfig(name=STREAM, subjects=["bench.>"]))


async def _check(js: JetStreamContext, number: int) -> None:
    stored = (await js.stream_info(STREAM)).state.messages
    assert stored == number, f"{stored:,} of {number:,} arrived"
