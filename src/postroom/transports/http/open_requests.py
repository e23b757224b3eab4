"""Where requests become deliveries: each stays open until somebody says what became of it.

```
   POST ─▶ signed? an event? room? ─▶ a delivery ─▶ ack        204
            401     400       503         │         terminate  200   it was put aside: do not send it again
                                          │         nack       503, Retry-After
                                          ├─ nobody did in time ─▶ 503
                                          └─ the sender hung up ─▶ lost; it will send it again
```

Nothing is kept here. The sender keeps what was not answered by 2xx, and sends it again.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from postroom.clock import utcnow
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, InvalidMessage, TransportUnavailable
from postroom.transports import cloudevents
from postroom.transports.http.decoding import Read, Unsupported, headers_in, read
from postroom.transports.http.signature import read_secret, unproven
from postroom.transports.receiving import ReceivingConsumer

PREFETCH_DEFAULT = 100
LARGEST_DEFAULT = 1024 * 1024
PATIENCE_DEFAULT = timedelta(seconds=15)
BUSY_SECONDS = 1

Headers = list[tuple[str, str]]

_TITLES = {
    400: "Not an event",
    401: "Not proven",
    404: "Nothing here",
    405: "Wrong method",
    408: "Too slow",
    413: "Too large",
    415: "Unknown format",
    503: "Not now",
}


class Answer(NamedTuple):
    """What the sender is told."""

    status: int
    headers: Headers
    body: bytes = b""


class Refused(Exception):
    """The request is answered without a delivery. Caught where it is answered."""

    def __init__(self, status: int, detail: str, *headers: tuple[str, str]) -> None:
        super().__init__(detail)
        self.answer = problem(status, detail, *headers)


@dataclass(slots=True, eq=False)
class Call:
    """A request that waits for its answer."""

    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def say(self, answer: Answer) -> None:
        """This is it, unless it was answered before."""
        if not self.answer.done():
            self.answer.set_result(answer)


class OpenRequests(ReceivingConsumer):
    """Takes requests on one side, and is a `Consumer` on the other. Used from one event loop.

    It needs secrets, by which senders prove who they are; or `unsigned=True`, if whoever reaches it may send."""

    def __init__(
        self,
        *,
        secrets: Sequence[str] = (),
        unsigned: bool = False,
        prefetch: int = PREFETCH_DEFAULT,
        largest: int = LARGEST_DEFAULT,
        patience: timedelta = PATIENCE_DEFAULT,
    ) -> None:
        super().__init__()
        if prefetch < 1 or largest < 1 or patience <= timedelta(0):
            raise ConfigError(
                f"prefetch is {prefetch}, largest {largest}, patience {patience}; give more than 0 for each."
            )
        self._keys = [read_secret(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
        _check_proof(is_signed=bool(self._keys), unsigned=unsigned)
        self._prefetch, self._largest, self._patience = prefetch, largest, patience
        self._is_open = False
        self._taken = 0
        """How many requests are being read, or wait for their answer."""
        self._calls: dict[Call, None] = {}
        self._line: deque[Delivery] = deque()

    # ── the side of those who handle ──

    @property
    def capabilities(self) -> ConsumerCapabilities:
        """Order is the sender's: who waits for each answer before sending the next of a key, as a relay does, keeps it."""
        return ConsumerCapabilities(
            name="http",
            durable=False,
            ordered=False,
            shares=False,
            counts_redeliveries=False,
            holds=False,
            groups=False,
        )

    async def open(self) -> None:
        """From now on requests are taken; before, they are told to come again."""
        self._is_open = True

    def is_lost(self, delivery: Delivery) -> bool:
        call: Call = delivery.token
        return call.answer.done()

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.token.say(Answer(204, []))

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        delivery.token.say(later(delay, "It could not be handled now."))

    async def terminate(self, delivery: Delivery) -> None:
        body = json.dumps({"status": "put aside"}).encode()
        delivery.token.say(Answer(200, [("content-type", "application/json")], body))

    async def close(self) -> None:
        """Every request that waits is told to come again."""
        self._is_open = False
        self._news.set()
        for call in list(self._calls):
            call.say(later(timedelta(0), "The receiver is stopping."))

    async def _take(self, limit: int, until: float) -> Sequence[Delivery]:  # noqa: ARG002 - it waits for nothing
        if not self._is_open:
            raise TransportUnavailable("The receiver of webhooks is closed: open it first.")
        taken: list[Delivery] = []
        while self._line and len(taken) < limit:
            delivery = self._line.popleft()
            if not self.is_lost(delivery):
                taken.append(delivery)
        return taken

    # ── the side of those who send ──

    async def answer(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], body: AsyncIterator[bytes]
    ) -> Answer:
        """What to say to this request, once it is known. Cancelled, the sender has hung up."""
        try:
            self._admit(method)
        except Refused as refused:
            return refused.answer
        self._taken += 1
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                found = self._read(*await self._collect(headers, body))
        except Refused as refused:
            return refused.answer
        except TimeoutError:
            return problem(408, "The body did not arrive in time.")
        else:
            return await self._wait_for_answer(found, path)
        finally:
            self._taken -= 1

    def _admit(self, method: str) -> None:
        if method != "POST":
            raise Refused(405, "Events are sent by POST.", ("allow", "POST"))
        if not self._is_open:
            raise Refused(503, "The receiver is not open.", retry_after(BUSY_SECONDS))
        if self._taken >= self._prefetch:
            raise Refused(503, "Too many requests are open.", retry_after(BUSY_SECONDS))

    async def _collect(
        self, pairs: Iterable[tuple[bytes, bytes]], body: AsyncIterator[bytes]
    ) -> tuple[dict[str, str], bytes]:
        """All of the request, as far as it is not too large."""
        try:
            headers = headers_in(pairs)
        except InvalidMessage as error:
            raise Refused(400, str(error)) from None
        too_large = Refused(413, f"The body is larger than {self._largest} bytes.")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > self._largest:
            raise too_large
        collected = bytearray()
        async for part in body:
            collected += part
            if len(collected) > self._largest:
                raise too_large
        return headers, bytes(collected)

    def _read(self, headers: dict[str, str], body: bytes) -> Read:
        try:
            if self._keys:
                self._authenticate(headers, body)
            return read(headers, body)
        except Unsupported as error:
            raise Refused(415, str(error)) from None
        except InvalidMessage as error:
            raise Refused(400, str(error)) from None

    def _authenticate(self, headers: dict[str, str], body: bytes) -> None:
        reason = unproven(self._keys, headers, body, int(utcnow().timestamp()))
        is_structured = cloudevents.is_structured(headers.get("content-type", ""))
        if reason is None and not is_structured and headers.get("ce-id", "") != headers["webhook-id"]:
            # The signature knows nothing of the other headers: with another id, a copy would pass for something new.
            reason = "Its ce-id is not the webhook-id that was signed."
        if reason is not None:
            raise Refused(401, reason, ("www-authenticate", "Standard-Webhooks"))

    async def _wait_for_answer(self, found: Read, path: str) -> Answer:
        if not self._is_open:
            return later(timedelta(0), "The receiver is stopping.")
        call = Call()
        self._calls[call] = None
        self._line.append(Delivery(found.message, found.source, path, token=call))
        self._news.set()
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                return await call.answer
        except TimeoutError:
            return later(timedelta(0), "It was not handled in time.")
        finally:
            # Cancelled by a sender that hung up, or by the time: from now on the delivery is lost.
            call.answer.cancel()
            del self._calls[call]


def _check_proof(*, is_signed: bool, unsigned: bool) -> None:
    """Raise ConfigError unless it is said, one way or the other, who may send."""
    if not is_signed and not unsigned:
        raise ConfigError(
            "The receiver of webhooks has no secret, so that anybody could send to it: give the secrets that senders sign with "
            "(secrets_file in the settings, POSTROOM_SECRETS_FILE, --secrets-file), or say that it is unsigned (--unsigned)."
        )
    if is_signed and unsigned:
        raise ConfigError(
            "The receiver of webhooks has secrets, and is said to be unsigned: leave out the secrets, or unsigned."
        )


def problem(status: int, detail: str, *headers: tuple[str, str]) -> Answer:
    """An answer that says what is wrong, as RFC 9457 has it."""
    body = json.dumps({"status": status, "title": _TITLES[status], "detail": detail}).encode()
    return Answer(status, [("content-type", "application/problem+json"), *headers], body)


def later(delay: timedelta, detail: str) -> Answer:
    """An answer that asks to send it again, after this delay; whole seconds are all that can be said."""
    return problem(503, detail, retry_after(math.ceil(max(delay.total_seconds(), 0))))


def retry_after(seconds: int) -> tuple[str, str]:
    """The header that says when to come again."""
    return ("retry-after", str(seconds))
