"""The sending side: each batch on a connection of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from nats.errors import Error
from nats.js.errors import NotFoundError

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, TransportCapabilities, Unavailable
from postroom.errors import ConfigError, TransportError, TransportRefused
from postroom.transports.nats import streams
from postroom.transports.nats.batch import ProducerConnection, open_producer
from postroom.transports.nats.connection import CONNECT_SECONDS, LOG
from postroom.transports.nats.encoding import Encoding
from postroom.transports.nats.interest import Interest, unread_at
from postroom.transports.nats.outcomes import NO_RESPONDERS, is_full, never_fits, unanswered_for
from postroom.transports.nats.url import is_subject, read
from postroom.transports.publishing import Calls, Deadline, checked_source

START_SHARE = 0.75
"""Nothing is begun in the last quarter of the time: it would have less of it than the first, and fail for that alone."""
LOOK_SECONDS = 2.0


class NatsPublisher:
    """Deliver each message to a JetStream stream; the stream's own confirmation is its word that it has it.

    ```python
    NatsPublisher("nats://broker-1:4222,broker-2:4222/ORDERS?subject=orders.paid", source="https://shop.example")
    ```

    A message goes to the subject that its route names, else to its own topic, else to the URL's. The stream is the one of the
    URL, and no other: a subject that it does not take is refused.
    """

    def __init__(self, url: str, *, source: str = "postroom") -> None:
        self._settings = read(url)
        if self._settings.subject is not None and not is_subject(self._settings.subject):
            raise ConfigError(
                f"{self._settings.shown} has a wildcard in its subject; name one subject to send to, like orders.paid."
            )
        self._encoding = Encoding(checked_source(source), self._settings.stream)
        self._interest = Interest(self._settings)
        self._idle: deque[ProducerConnection] = deque()
        self._calls = Calls()

    @property
    def capabilities(self) -> TransportCapabilities:
        topic = self._settings.subject
        return TransportCapabilities(name="nats", durable=True, ordered=True, batches=True, topic=topic)

    async def open(self) -> None:
        """Look whether the server answers, and the stream is there and can keep what it confirms. When no server answers,
        `publish` goes on trying."""
        self._calls.open()
        producer = await self._producer(CONNECT_SECONDS)
        self._idle.append(producer)
        config = await streams.config_of(producer.connection, self._settings)
        for reason in streams.unusable(config, self._settings):
            raise TransportRefused(reason)
        self._interest.learn(config)
        unread = await unread_at(producer.connection, config, self._settings)
        for weakness in (*streams.weaknesses_of(config, self._settings), *unread):
            LOG.warning("%s", weakness)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return await self._calls.run(self._publish, batch, timeout)

    async def close(self) -> None:
        await self._calls.close()
        while self._idle:
            await self._idle.pop().connection.close()

    async def _publish(self, batch: Sequence[Envelope], by: Deadline) -> list[Outcome]:
        publishing = asyncio.ensure_future(self._send(batch, by))
        self._calls.keep(publishing, by)
        try:
            # The client swallows a cancellation in places: whoever gives up waiting is let go all the same.
            return await asyncio.shield(publishing)
        except asyncio.CancelledError:
            publishing.cancel()
            raise

    async def _send(self, batch: Sequence[Envelope], by: Deadline) -> list[Outcome]:
        until = by.until
        try:
            producer = await self._producer(min(CONNECT_SECONDS, (until - by.begin) * START_SHARE))
        except TransportError as exc:
            return [Unavailable("CONNECT_FAILED", str(exc))] * len(batch)
        try:
            producer.refused = await self._interest.refused(
                producer.connection, partial(producer.subjects_of, batch), until
            )
            outcomes = await producer.send(batch, last_start=by.after(START_SHARE), until=until)
            if NO_RESPONDERS in outcomes:
                outcomes = await self._explain(producer, batch, outcomes, until)
            if any(map(is_full, outcomes)):
                outcomes = await self._find_what_never_fits(producer, batch, outcomes, until)
        except BaseException:
            await producer.connection.drop()
            raise
        if producer.connection.is_open:
            self._idle.append(producer)
        else:
            await producer.connection.drop()
        return outcomes

    async def _producer(self, seconds: float) -> ProducerConnection:
        """One that answers; TransportUnavailable when none can be had."""
        begin = monotonic()
        while self._idle:
            producer = self._idle.pop()
            if await producer.connection.is_there(seconds / 2):
                return producer
            await producer.connection.drop()
        return await open_producer(self._settings, self._encoding, max(seconds - (monotonic() - begin), 0.05))

    async def _find_what_never_fits(
        self, producer: ProducerConnection, batch: Sequence[Envelope], outcomes: list[Outcome], until: float
    ) -> list[Outcome]:
        """A full stream is waited for, but not by a message that is larger than all of it: that would wait forever."""
        try:
            async with asyncio.timeout(max(min(LOOK_SECONDS, until - monotonic()), 0.05)):
                room = (await streams.info_of(producer.connection, self._settings.stream)).max_bytes or 0
        except (TimeoutError, OSError, Error):
            return outcomes
        return [
            never_fits(outcome, producer.size_of(envelope), room) or outcome if is_full(outcome) else outcome
            for envelope, outcome in zip(batch, outcomes, strict=True)
        ]

    async def _explain(
        self, producer: ProducerConnection, batch: Sequence[Envelope], outcomes: list[Outcome], until: float
    ) -> list[Outcome]:
        """Nobody answered for some subjects: is it the subject, the stream, or JetStream itself?"""
        patterns: list[str] | None
        try:
            async with asyncio.timeout(max(min(LOOK_SECONDS, until - monotonic()), 0.05)):
                patterns = (await streams.info_of(producer.connection, self._settings.stream)).subjects or []
        except NotFoundError:
            patterns = None
        except (TimeoutError, OSError, Error) as exc:
            away = Unavailable("JETSTREAM_AWAY", f"JetStream does not answer: {exc}")
            return [away if outcome is NO_RESPONDERS else outcome for outcome in outcomes]
        return [
            unanswered_for(
                producer.subject_of(envelope) or "",
                of_the_url=producer.is_of_the_url(envelope),
                stream=self._settings.stream,
                patterns=patterns,
            )
            if outcome is NO_RESPONDERS
            else outcome
            for envelope, outcome in zip(batch, outcomes, strict=True)
        ]
