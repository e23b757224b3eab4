"""Redis Streams: batches of 1,000, confirmed, by Postroom's publisher and by redis-py's fastest way.

That is a pipeline without a transaction, of one XADD for each message with the same fields, and a look at every answer. It
stops at no failure: what a key's later messages need is what Postroom adds. Each side has a process and a stream of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from tests.servers import start
from tests.servers.run import Run

from bench.messages import messages
from bench.process import Process
from bench.table import Row, progress, ratio, take_turns
from postroom.contracts.transport import Envelope, Sent

BATCH = 1_000
TARGET = 0.7
TIMEOUT = timedelta(seconds=30)


def rows(quick: bool) -> Iterator[Row]:
    """Messages a second, side by side with redis-py's client, and for information with its client for asyncio."""
    batches, rounds = (2, 1) if quick else (20, 7)
    with _server() as (url, what), Process() as base, Process() as ours:
        for by, name, target in (
            (by_redis_py, "redis-py pipeline", TARGET),
            (by_asyncio, "its asyncio pipeline", None),
        ):
            title = f"publish {batches * BATCH:,} to {what}, batches of {BATCH:,}"
            pairs = take_turns(
                f"{title}, {name}",
                partial(base.call, by, url, batches),
                partial(ours.call, by_postroom, url, batches),
                rounds=rounds,
            )
            yield Row(what=title, base=name, ours="RedisPublisher", unit="msg/s", target=target, **ratio(pairs))


def by_redis_py(url: str, batches: int) -> float:
    """Messages a second by a pipeline of the client that does not use asyncio, and is faster: hiredis packs for it."""
    from redis import Redis

    from postroom.transports.redis_streams.encoding import Encoding

    words_of = Encoding("postroom").words_of
    made = messages(BATCH)
    with Redis.from_url(url) as client:
        client.delete("bench:redis-py")
        begin = time.perf_counter()
        for _ in range(batches):
            with client.pipeline(transaction=False) as pipeline:
                for message in made:
                    pipeline.execute_command("XADD", "bench:redis-py", "*", *words_of(message))
                answers = pipeline.execute()
            assert all(isinstance(answer, bytes) for answer in answers)
        took = time.perf_counter() - begin
        assert client.xlen("bench:redis-py") == batches * BATCH
    return batches * BATCH / took


def by_asyncio(url: str, batches: int) -> float:
    """The same by the client for asyncio, as a service that uses it would."""
    return asyncio.run(_by_asyncio(url, batches))


async def _by_asyncio(url: str, batches: int) -> float:
    from redis.asyncio import Redis

    from postroom.transports.redis_streams.encoding import Encoding

    words_of = Encoding("postroom").words_of
    made = messages(BATCH)
    async with Redis.from_url(url) as client:
        await client.delete("bench:asyncio")
        begin = time.perf_counter()
        for _ in range(batches):
            async with client.pipeline(transaction=False) as pipeline:
                for message in made:
                    pipeline.execute_command("XADD", "bench:asyncio", "*", *words_of(message))
                answers = await pipeline.execute()
            assert all(isinstance(answer, bytes) for answer in answers)
        took = time.perf_counter() - begin
        assert await client.xlen("bench:asyncio") == batches * BATCH
    return batches * BATCH / took


def by_postroom(url: str, batches: int) -> float:
    """Messages a second by the publisher."""
    return asyncio.run(_by_postroom(url, batches))


async def _by_postroom(url: str, batches: int) -> float:
    from redis.asyncio import Redis

    from postroom.transports.redis_streams import RedisPublisher

    async with Redis.from_url(url) as client:
        await client.delete("bench:postroom")
        publisher = RedisPublisher(f"{url}/bench:postroom")
        await publisher.open()
        made = [Envelope(message) for message in messages(BATCH)]
        begin = time.perf_counter()
        for _ in range(batches):
            outcomes = await publisher.publish(made, timeout=TIMEOUT)
            assert all(isinstance(outcome, Sent) for outcome in outcomes)
        took = time.perf_counter() - begin
        await publisher.close()
        assert await client.xlen("bench:postroom") == batches * BATCH
    return batches * BATCH / took


@contextmanager
def _server() -> Iterator[tuple[str, str]]:
    """A server of our own with an append-only file, gone afterwards; and what it is."""
    progress("starting Valkey")
    run = Run.create()
    try:
        server = start("redis", run=run)
        yield server.url, f"Redis Streams (Valkey {server.version}, AOF)"
    finally:
        run.close()
