"""One batch on its way: what goes now, what waits for the one before it, what became of each; and the connection it goes by."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from nats.errors import ConnectionClosedError, Error

from postroom.clock import monotonic
from postroom.contracts.transport import NOT_STARTED, Envelope, Failed, Outcome, Rejected
from postroom.errors import TransportUnavailable
from postroom.transports.nats.connection import Connection, connect
from postroom.transports.nats.encoding import Encoding, size_of
from postroom.transports.nats.outcomes import BROKEN, LOST, NO_SUBJECT, UNANSWERED, not_allowed, outcome_of
from postroom.transports.nats.url import NatsUrl, is_subject
from postroom.transports.ordering import KeyOrder
from postroom.transports.publishing import timeout_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.msg import Msg

WINDOW = 4_000
"""So many are on their way at once: a stream refuses more than it can buffer."""
SUBJECTS_MAX = 10_000
_HEADERS_OFTEN = 4_096
"""Most messages are so much smaller than the limit that their headers need not be counted."""

Send = Callable[[int, Envelope], Awaitable[Outcome | None]]
"""Writes a message to the connection; or says what becomes of one that cannot be written."""


class Batch:
    """A batch, and what became of it.

    Of each key one message is on its way at a time: a stream's leader may change, or the stream be full for a large one and
    not for the small one behind it: what follows a message that is not stored must not be stored before it."""

    def __init__(self, batch: Sequence[Envelope], send: Send, *, last_start: float) -> None:
        self._order = KeyOrder([message.key for message, _ in batch])
        self.outcomes = self._order.outcomes
        self.under_way: set[int] = set()
        self.done = asyncio.Event()
        self.batch, self._send, self._last_start = batch, send, last_start
        self._ready = deque(self._order.first)

    async def go_on(self) -> None:
        """Send what can be sent now."""
        ready, under_way = self._ready, self.under_way
        while ready and len(under_way) < WINDOW and monotonic() < self._last_start:
            index = ready.popleft()
            under_way.add(index)
            outcome = await self._send(index, self.batch[index])
            if outcome is not None:
                self._settle(index, outcome)
        if not under_way and (not ready or monotonic() >= self._last_start):
            self.done.set()

    async def answer(self, index: int, outcome: Outcome) -> None:
        """The stream said what became of it."""
        if index in self.under_way:
            self._settle(index, outcome)
            if self._ready or not self.under_way:
                await self.go_on()

    def give_up(self, *, is_broken: bool) -> bool:
        """The connection is gone, or the time is up; whether the fate of some is not known."""
        self._ready.clear()
        missing, self.under_way = self.under_way, set()
        for index in missing:
            self._order.settle(index, BROKEN if is_broken else UNANSWERED)
        if is_broken:
            self.outcomes[:] = [LOST if outcome is NOT_STARTED else outcome for outcome in self.outcomes]
        self.done.set()
        return bool(missing)

    def _settle(self, index: int, outcome: Outcome) -> None:
        self.under_way.discard(index)
        if (follower := self._order.settle(index, outcome)) is not None:
            self._ready.append(follower)


class ProducerConnection:
    """A connection to send by, with an inbox for the stream's answers. It serves one batch at a time. See `open_producer`."""

    def __init__(self, connection: Connection, settings: NatsUrl, encoding: Encoding) -> None:
        self.connection, self._settings, self._encoding = connection, settings, encoding
        self._client = connection.client
        self._inbox = f"{self._client.new_inbox()}."
        self._sending: Batch | None = None
        self._base = 0
        """The number of the batch's first message: an answer to an earlier batch is no answer to this one."""
        self._largest = int(self._client.max_payload)
        self._known: set[str] = set()
        self.refused: Mapping[str, Outcome] = {}
        """What is said of messages to these subjects, without sending them."""
        self._telling: set[asyncio.Future[None]] = set()
        connection.when_closed = self._broke
        connection.when_forbidden = self._forbidden

    async def listen(self) -> None:
        """Ask for the answers."""
        await self._client.subscribe(f"{self._inbox}*", cb=self._answered)

    async def send(self, batch: Sequence[Envelope], *, last_start: float, until: float) -> list[Outcome]:
        """Send the batch and wait for the answers until then. What is unanswered then ends the connection with it."""
        sending = self._sending = Batch(batch, self._write, last_start=last_start)
        await sending.go_on()
        try:
            async with timeout_at(until):
                await sending.done.wait()
        except TimeoutError:
            is_spent = sending.give_up(is_broken=False)
        else:
            is_spent = False
        self._sending = None
        self._base += len(batch)
        if is_spent:
            await self.connection.drop()
        return sending.outcomes

    def subjects_of(self, batch: Sequence[Envelope]) -> set[str]:
        """Where these go."""
        return {subject for envelope in batch if (subject := self.subject_of(envelope)) is not None}

    def subject_of(self, envelope: Envelope) -> str | None:
        return envelope.topic or envelope.message.topic or self._settings.subject

    def is_of_the_url(self, envelope: Envelope) -> bool:
        return not (envelope.topic or envelope.message.topic)

    def size_of(self, envelope: Envelope) -> int:
        """What a message that was written has in bytes, with its headers."""
        message = envelope.message
        return size_of(self._encoding.headers_of(message, self.subject_of(envelope) or ""), message.body or b"")

    async def _write(self, index: int, envelope: Envelope) -> Outcome | None:
        message, subject = envelope.message, self.subject_of(envelope)
        if subject is None:
            return NO_SUBJECT
        if subject not in self._known and (refused := self._learn(subject)):
            return refused
        if self.refused and (outcome := self.refused.get(subject)) is not None:
            return outcome
        body = message.body or b""
        try:
            headers = self._encoding.headers_of(message, subject)
        except ValueError as exc:
            return Rejected("INVALID_MESSAGE", str(exc))
        # The server ends the connection for one that is too large, and all that is on it has no answer.
        if len(body) + _HEADERS_OFTEN > self._largest or message.headers:
            size = size_of(headers, body)
            if size > self._largest:
                said = f"with its headers it has {size:,} bytes, and the server takes {self._largest:,}"
                return Rejected("PAYLOAD_TOO_LARGE", said)
        try:
            await self._client.publish(subject, body, f"{self._inbox}{self._base + index}", headers)
        except ConnectionClosedError:
            return LOST
        except (OSError, Error) as exc:
            return Failed("CONNECTION_BROKEN", str(exc), unknown=True)
        return None

    def _learn(self, subject: str) -> Outcome | None:
        if not is_subject(subject):
            return Rejected("INVALID_SUBJECT", f"{subject[:60]!r} is not a NATS subject to publish to")
        if len(self._known) >= SUBJECTS_MAX:
            self._known.clear()
        self._known.add(subject)
        return None

    async def _answered(self, answer: Msg) -> None:
        sending = self._sending
        index = int(answer.subject[len(self._inbox) :]) - self._base
        if sending is None or not 0 <= index < len(sending.outcomes):
            return
        self.connection.heard_at = monotonic()
        if (outcome := outcome_of(answer.data, answer.headers, self._settings.stream)) is not None:
            await sending.answer(index, outcome)

    def _broke(self) -> None:
        if self._sending is not None:
            self._sending.give_up(is_broken=True)

    def _forbidden(self, subject: str, said: str) -> None:
        """The server does not say which message it was, and the library writes the subject small; all of that subject have
        the same fate."""
        sending = self._sending
        if sending is None:
            return
        for index in sorted(sending.under_way):
            envelope = sending.batch[index]
            name = self.subject_of(envelope) or ""
            if name.lower() != subject.lower():
                continue
            outcome = not_allowed(name, said, of_the_url=self.is_of_the_url(envelope))
            telling = asyncio.ensure_future(sending.answer(index, outcome))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)


async def open_producer(settings: NatsUrl, encoding: Encoding, seconds: float) -> ProducerConnection:
    """Return a new one. Raises TransportUnavailable when there is none to be had in that time."""
    producer = ProducerConnection(await connect(settings, seconds), settings, encoding)
    try:
        await producer.listen()
    except (OSError, Error) as exc:
        await producer.connection.drop()
        raise TransportUnavailable(f"The connection to {settings.shown} broke: {exc}; it is tried again.") from exc
    return producer
