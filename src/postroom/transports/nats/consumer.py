"""The receiving side: a durable consumer of the stream for each group, and one receiver of it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportRefused, TransportUnavailable
from postroom.transports.nats import streams
from postroom.transports.nats.connection import CONNECT_SECONDS, LOG, Connection, connect
from postroom.transports.nats.inflight import InFlightMessage
from postroom.transports.nats.receiver import ACK, NAK, TERM, NatsReceiver
from postroom.transports.nats.url import group_name, read

PREFETCH_DEFAULT = 200


class NatsConsumer:
    """Receive from a JetStream stream, in its order. Of several receivers of a group one receives, the others stand by.

    ```python
    NatsConsumer("nats://broker:4222/ORDERS?subject=orders.*&ack_wait=15s", group="billing")
    ```

    Without a subject all of the stream is read. See `postroom.contracts.transport` for what each method promises.
    """

    def __init__(self, url: str, *, group: str = "postroom", prefetch: int = PREFETCH_DEFAULT) -> None:
        if prefetch < 1:
            raise ConfigError(f"prefetch is {prefetch}; give 1 or more.", prefetch=prefetch)
        self._settings = read(url)
        self._group, self._prefetch = group_name(group), prefetch
        self._pulling: NatsReceiver | None = None
        self._is_closed = True

    @property
    def capabilities(self) -> ConsumerCapabilities:
        return ConsumerCapabilities(name="nats", durable=True, ordered=True, shares=False, counts_redeliveries=True)

    async def open(self) -> None:
        self._is_closed = False
        if self._pulling is not None and not self._pulling.is_over:
            return
        if self._pulling is not None:
            await self._pulling.connection.drop()
        await self._connect(warn=True)

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        until = monotonic() + wait.total_seconds()
        pulling = self._pulling
        if pulling is None or pulling.is_over:
            if self._is_closed:
                raise TransportUnavailable(f"The receiver of {self._settings.shown} is closed; open it.")
            pulling = await self._renew(pulling)
        while True:
            if taken := pulling.take(limit):
                return [hold.delivery for hold in taken if hold.delivery is not None]
            if pulling.is_over:
                why = pulling.why or "the connection broke"
                raise TransportUnavailable(f"{self._settings.shown} cannot be received from: {why}; it is tried again.")
            if (left := until - monotonic()) <= 0:
                return []
            pulling.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await pulling.changed.wait()

    def is_lost(self, delivery: Delivery) -> bool:
        pulling, hold = self._pulling, delivery.token
        return pulling is None or pulling.is_forgotten or pulling.hand.given.get(hold.place) is not hold

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await self._settle(delivery.token, ACK)

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        pulling, seconds = self._pulling, max(delay.total_seconds(), 0.0)
        if pulling is not None and not pulling.is_over and pulling.hand.refuse(delivery.token, monotonic() + seconds):
            word = NAK + b' {"delay": %d}' % int(seconds * 1e9) if seconds else NAK
            await pulling.tell(delivery.token, word)

    async def terminate(self, delivery: Delivery) -> None:
        await self._settle(delivery.token, TERM)

    async def close(self) -> None:
        self._is_closed = True
        pulling, self._pulling = self._pulling, None
        if pulling is None:
            return
        if pulling.connection.is_open:
            await pulling.give_all_back()
            await pulling.connection.close()
        else:
            pulling.end()
            await pulling.connection.drop()

    async def _settle(self, hold: InFlightMessage, word: bytes) -> None:
        pulling = self._pulling
        if pulling is not None and not pulling.is_over and pulling.hand.settle(hold):
            await pulling.tell(hold, word)

    async def _renew(self, old: NatsReceiver | None) -> NatsReceiver:
        if old is not None:
            self._pulling = None
            await old.connection.drop()
        try:
            return await self._connect()
        except ConfigError as exc:
            # It was there when we began: somebody may be making it anew.
            raise TransportUnavailable(str(exc)) from exc

    async def _connect(self, *, warn: bool = False) -> NatsReceiver:
        connection = await connect(self._settings)
        try:
            config = await streams.config_of(connection, self._settings)
            found = await self._consumer(connection)
            pulling = NatsReceiver(
                connection,
                self._settings.stream,
                self._group,
                prefetch=self._prefetch,
                ack_wait=self._settings.ack_wait.total_seconds(),
            )
            await pulling.begin(found.num_ack_pending or 0)
        except BaseException:
            await connection.drop()
            raise
        if warn:
            for weakness in streams.weaknesses_of(config, self._settings):
                LOG.warning("%s", weakness)
        self._pulling = pulling
        return pulling

    async def _consumer(self, connection: Connection) -> ConsumerInfo:
        """The group at the server, made where it is not there. It is never deleted by us: it is the group's memory."""
        js, stream = connection.client.jetstream(timeout=CONNECT_SECONDS), self._settings.stream
        try:
            with suppress(NotFoundError):
                self._refuse_another(await js.consumer_info(stream, self._group))
            return await js.add_consumer(stream, self._wanted())
        except APIError as exc:
            said = f"The group {self._group!r} of {self._settings.shown} cannot be had: {exc.description}"
            if (exc.code or 0) >= 500:
                raise TransportUnavailable(f"{said}; it is tried again.") from None
            raise TransportRefused(f"{said}; correct the URL, or the stream.") from None
        except (TimeoutError, OSError, Error) as exc:
            raise TransportUnavailable(
                f"JetStream at {self._settings.shown} does not answer ({exc}); it is tried again."
            ) from None

    def _wanted(self) -> ConsumerConfig:
        return ConsumerConfig(
            durable_name=self._group,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._settings.ack_wait.total_seconds(),
            max_deliver=-1,
            max_waiting=1,
            max_ack_pending=self._prefetch,
            filter_subject=self._settings.subject,
        )

    def _refuse_another(self, there: ConsumerInfo) -> None:
        """ConfigError where a consumer of this name was made by others, or for other subjects."""
        subject, wanted = there.config.filter_subject or None, self._settings.subject
        if subject != wanted or there.config.filter_subjects:
            raise ConfigError(
                f"The group {self._group!r} of {self._settings.shown} reads {subject or 'other subjects'!r}, not "
                f"{wanted or 'all of them'!r}; choose another group, or correct the URL."
            )
        if there.config.max_waiting != 1 or there.config.ack_policy != AckPolicy.EXPLICIT:
            raise ConfigError(
                f"{self._settings.shown} has a consumer {self._group!r} that Postroom did not make; choose another group."
            )
