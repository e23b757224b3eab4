"""The receiving side: a durable consumer of the stream for each group, and one receiver of it at a time."""

from __future__ import annotations

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
from postroom.transports.nats.receiver import ACK, NAK, TERM, NatsReceiver
from postroom.transports.nats.url import group_name, read
from postroom.transports.receiving import ReceivingConsumer, checked_prefetch

PREFETCH_DEFAULT = 200


class NatsConsumer(ReceivingConsumer):
    """Receive from a JetStream stream, in its order. Of several receivers of a group one receives, the others stand by.

    ```python
    NatsConsumer("nats://broker:4222/ORDERS?subject=orders.*&ack_wait=15s", group="billing")
    ```

    Without a subject all of the stream is read. See `postroom.contracts.transport` for what each method promises.
    """

    def __init__(self, url: str, *, group: str = "postroom", prefetch: int = PREFETCH_DEFAULT) -> None:
        super().__init__()
        self._settings = read(url)
        self._group, self._prefetch = group_name(group), checked_prefetch(prefetch)
        self._receiver: NatsReceiver | None = None
        self._is_closed = True

    @property
    def capabilities(self) -> ConsumerCapabilities:
        return ConsumerCapabilities(name="nats", durable=True, ordered=True, shares=False, counts_redeliveries=True)

    async def open(self) -> None:
        self._is_closed = False
        if self._receiver is not None and not self._receiver.is_over:
            return
        if self._receiver is not None:
            await self._receiver.connection.drop()
        await self._connect(warn=True)

    def is_lost(self, delivery: Delivery) -> bool:
        receiver = self._receiver
        return receiver is None or receiver.is_forgotten or receiver.in_flight.is_lost(delivery)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await self._settle(delivery, ACK)

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        receiver, seconds = self._receiver, max(delay.total_seconds(), 0.0)
        if receiver is None or receiver.is_over:
            return
        if receiver.in_flight.send_back(delivery, monotonic() + seconds):
            await receiver.say(delivery, NAK + b' {"delay": %d}' % int(seconds * 1e9) if seconds else NAK)

    async def terminate(self, delivery: Delivery) -> None:
        await self._settle(delivery, TERM)

    async def close(self) -> None:
        self._is_closed = True
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if receiver.connection.is_open:
            await receiver.give_all_back()
            await receiver.connection.close()
        else:
            receiver.end()
            await receiver.connection.drop()

    async def _begin(self, until: float) -> None:  # noqa: ARG002 - it connects as fast as it can
        receiver = self._receiver
        if receiver is None or receiver.is_over:
            if self._is_closed:
                raise TransportUnavailable(f"The receiver of {self._settings.shown} is closed; open it.")
            await self._renew(receiver)

    async def _take(self, limit: int, until: float) -> Sequence[Delivery]:  # noqa: ARG002 - it waits for nothing
        receiver = self._receiver
        if receiver is not None and (given := receiver.give(limit)):
            return given
        if receiver is None or receiver.is_over:
            why = (receiver and receiver.why) or "the connection broke"
            raise TransportUnavailable(f"{self._settings.shown} cannot be received from: {why}; it is tried again.")
        return []

    async def _settle(self, delivery: Delivery, word: bytes) -> None:
        receiver = self._receiver
        if receiver is not None and not receiver.is_over and receiver.in_flight.settle((delivery,)):
            await receiver.say(delivery, word)

    async def _renew(self, old: NatsReceiver | None) -> NatsReceiver:
        if old is not None:
            self._receiver = None
            await old.connection.drop()
        try:
            return await self._connect()
        except ConfigError as exc:
            # It was there when we began: somebody may be making it again.
            raise TransportUnavailable(str(exc)) from exc

    async def _connect(self, *, warn: bool = False) -> NatsReceiver:
        connection = await connect(self._settings)
        try:
            config = await streams.config_of(connection, self._settings)
            found = await self._consumer(connection)
            receiver = NatsReceiver(
                connection,
                self._settings.stream,
                self._group,
                prefetch=self._prefetch,
                ack_wait=self._settings.ack_wait.total_seconds(),
                tell=self._news.set,
            )
            await receiver.begin(found.num_ack_pending or 0)
        except BaseException:
            await connection.drop()
            raise
        if warn:
            for weakness in streams.weaknesses_of(config, self._settings):
                LOG.warning("%s", weakness)
        self._receiver = receiver
        return receiver

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
