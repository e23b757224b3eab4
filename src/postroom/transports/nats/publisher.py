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
from postroom.transports.nats.connection import CONNECT_SECONDS, LOG
from postroom.transports.nats.encoding import Encoding
from postroom.transports.nats.interest import Interest, unread_at
from postroom.transports.nats.outcomes import NO_RESPONDERS, is_full, never_fits, unanswered_for
from postroom.transports.nats.producer import ProducerConnection, open_line
from postroom.transports.nats.url import is_subject, read

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
        if not source:
            raise ConfigError("source is empty; CloudEvents needs one, like 'https://shop.example'.")
        self._settings = read(url)
        if self._settings.subject is not None and not is_subject(self._settings.subject):
            raise ConfigError(
                f"{self._settings.shown} has a wildcard in its subject; name one subject to send to, like orders.paid."
            )
        self._binding = Encoding(source, self._settings.stream)
        self._interest = Interest(self._settings)
        self._idle: deque[ProducerConnection] = deque()
        self._busy: set[asyncio.Task[list[Outcome]]] = set()
        self._is_open = False

    @property
    def capabilities(self) -> TransportCapabilities:
        topic = self._settings.subject
        return TransportCapabilities(name="nats", durable=True, ordered=True, batches=True, topic=topic)

    async def open(self) -> None:
        """Look whether the server answers, and the stream is there and can keep what it confirms. When no server answers,
        `publish` goes on trying."""
        self._is_open = True
        line = await self._line(CONNECT_SECONDS)
        self._idle.append(line)
        config = await streams.config_of(line.connection, self._settings)
        for reason in streams.unusable(config, self._settings):
            raise TransportRefused(reason)
        self._interest.learn(config)
        unread = await unread_at(line.connection, config, self._settings)
        for weakness in (*streams.weaknesses_of(config, self._settings), *unread):
            LOG.warning("%s", weakness)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        if not self._is_open:
            return [Unavailable("CLOSED", "the publisher is not open")] * len(batch)
        if not batch:
            return []
        publishing = asyncio.ensure_future(self._publish(batch, timeout.total_seconds()))
        self._busy.add(publishing)
        publishing.add_done_callback(self._busy.discard)
        try:
            # The client swallows a cancellation in places: whoever gives up waiting is let go all the same.
            return await asyncio.shield(publishing)
        except asyncio.CancelledError:
            publishing.cancel()
            raise

    async def close(self) -> None:
        self._is_open = False
        if self._busy:
            await asyncio.wait(set(self._busy))
        while self._idle:
            await self._idle.pop().connection.close()

    async def _publish(self, batch: Sequence[Envelope], seconds: float) -> list[Outcome]:
        begin = monotonic()
        # A little less than it has, so that the answer is there in time.
        until = begin + seconds - min(0.1 * seconds, 0.5)
        try:
            line = await self._line(min(CONNECT_SECONDS, (until - begin) * START_SHARE))
        except TransportError as exc:
            return [Unavailable("CONNECT_FAILED", str(exc))] * len(batch)
        try:
            line.refused = await self._interest.refused(line.connection, partial(line.subjects_of, batch), until)
            outcomes = await line.send(batch, last_start=begin + seconds * START_SHARE, until=until)
            if NO_RESPONDERS in outcomes:
                outcomes = await self._explain(line, batch, outcomes, until)
            if any(map(is_full, outcomes)):
                outcomes = await self._find_what_never_fits(line, batch, outcomes, until)
        except BaseException:
            await line.connection.drop()
            raise
        if line.connection.is_open:
            self._idle.append(line)
        else:
            await line.connection.drop()
        return outcomes

    async def _line(self, seconds: float) -> ProducerConnection:
        """One that answers; TransportUnavailable when none can be had."""
        begin = monotonic()
        while self._idle:
            line = self._idle.pop()
            if await line.connection.is_there(seconds / 2):
                return line
            await line.connection.drop()
        return await open_line(self._settings, self._binding, max(seconds - (monotonic() - begin), 0.05))

    async def _find_what_never_fits(
        self, line: ProducerConnection, batch: Sequence[Envelope], outcomes: list[Outcome], until: float
    ) -> list[Outcome]:
        """A full stream is waited for, but not by a message that is larger than all of it: that would wait for ever."""
        try:
            async with asyncio.timeout(max(min(LOOK_SECONDS, until - monotonic()), 0.05)):
                room = (await streams.info_of(line.connection, self._settings.stream)).max_bytes or 0
        except (TimeoutError, OSError, Error):
            return outcomes
        return [
            never_fits(outcome, line.size_of(envelope), room) or outcome if is_full(outcome) else outcome
            for envelope, outcome in zip(batch, outcomes, strict=True)
        ]

    async def _explain(
        self, line: ProducerConnection, batch: Sequence[Envelope], outcomes: list[Outcome], until: float
    ) -> list[Outcome]:
        """Nobody answered for some subjects: is it the subject, the stream, or JetStream itself?"""
        patterns: list[str] | None
        try:
            async with asyncio.timeout(max(min(LOOK_SECONDS, until - monotonic()), 0.05)):
                patterns = (await streams.info_of(line.connection, self._settings.stream)).subjects or []
        except NotFoundError:
            patterns = None
        except (TimeoutError, OSError, Error) as exc:
            away = Unavailable("JETSTREAM_AWAY", f"JetStream does not answer: {exc}")
            return [away if outcome is NO_RESPONDERS else outcome for outcome in outcomes]
        return [
            unanswered_for(
                line.subject_of(envelope) or "",
                of_the_url=line.is_of_the_url(envelope),
                stream=self._settings.stream,
                patterns=patterns,
            )
            if outcome is NO_RESPONDERS
            else outcome
            for envelope, outcome in zip(batch, outcomes, strict=True)
        ]
