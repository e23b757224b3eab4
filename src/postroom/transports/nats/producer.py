"""A line to the stream: one connection, used by one batch at a time, with an inbox for the stream's answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nats.errors import ConnectionClosedError, Error

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Failed, Outcome, Rejected
from postroom.errors import TransportUnavailable
from postroom.transports.nats.batch import Batch
from postroom.transports.nats.connection import Connection, connect
from postroom.transports.nats.encoding import Encoding, size_of
from postroom.transports.nats.outcomes import LOST, NO_SUBJECT, not_allowed, outcome_of
from postroom.transports.nats.url import NatsUrl, is_subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nats.aio.msg import Msg

_HEADERS_OFTEN = 4_096
"""Most messages are so much smaller than the limit that their headers need not be counted."""
SUBJECTS_MAX = 10_000


class ProducerConnection:
    """Made by `open_line`."""

    def __init__(self, connection: Connection, settings: NatsUrl, binding: Encoding) -> None:
        self.connection, self._settings, self._binding = connection, settings, binding
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
            async with asyncio.timeout(until - monotonic()):
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
        return size_of(self._binding.headers_of(message, self.subject_of(envelope) or ""), message.body or b"")

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
            headers = self._binding.headers_of(message, subject)
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
            return Rejected("INVALID_SUBJECT", f"{subject[:60]!r} is no NATS subject to publish to")
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


async def open_line(settings: NatsUrl, binding: Encoding, seconds: float) -> ProducerConnection:
    """A new line; TransportUnavailable when there is none to be had in that time."""
    line = ProducerConnection(await connect(settings, seconds), settings, binding)
    try:
        await line.listen()
    except (OSError, Error) as exc:
        await line.connection.drop()
        raise TransportUnavailable(f"The connection to {settings.shown} broke: {exc}; it is tried again.") from exc
    return line
