"""Receiving on one connection: a pull request at a time, and nothing given on while others have something in flight.

A consumer of ours lets one pull request wait (`max_waiting` 1). Whoever has it receives; the others of the group are turned
away, and stand by. Two things remain that would break the order of a key, and the *gate* is closed for both:

- What a dead receiver had in flight comes again only after `ack_wait`, and newer messages before it. So what comes first is
  held back until the server says that nothing is in flight at anybody but us. It is asked, not waited for: a server may stand
  still for longer than any time we would wait.
- Another may have received between two pulls of ours. Then the numbers of our deliveries have a gap.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nats.errors import Error

from postroom.clock import monotonic
from postroom.contracts.transport import Delivery
from postroom.transports.inflight import NEVER, InFlight, InFlightMessage
from postroom.transports.nats.connection import Connection
from postroom.transports.nats.encoding import message_of

if TYPE_CHECKING:
    from nats.aio.msg import Msg

NAK, PROGRESS, TERM, ACK = b"-NAK", b"+WPI", b"+TERM", b"+ACK"
PULL_SECONDS = 5.0
LATE_SECONDS = 2.0
"""So long after its end a pull request is waited for."""
STANDBY_SECONDS = 0.5
GATE_SECONDS = 0.1
OVERDUE_SECONDS = 1.0
_END = {"404", "408"}
_BEAT = "100"
_TURNED_AWAY = "maxwaiting"
_PROLONG_SHARE = 1 / 4


class PulledMessages(InFlight[str]):
    """What is in flight, by the place in the stream. The receipt is where the server wants to hear of a message.

    What is refused goes back to the server. It is not ours until it arrives again, but its key waits for it here."""

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self.refused: dict[int, float] = {}
        """When those that were sent back come again, by place."""
        self.settled = 0
        """How many were told of to the server, as handled or not."""

    @property
    def waiting(self) -> int:
        return super().waiting - len(self.refused)

    def ours(self) -> list[Delivery]:
        """Return those that the server counts as ours, in the stream's order: as many as `len` says."""
        return [each for each in self if each.token.position not in self.refused]

    def arrive(self, delivery: Delivery) -> None:
        self.refused.pop(delivery.token.position, None)
        super().arrive(delivery)

    def settle(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        settled = super().settle(deliveries)
        self.settled += len(settled)
        return settled

    def send_back(self, delivery: Delivery, due: float) -> bool:
        """It comes again, at this time. Return False, and do nothing, if it is not given now."""
        if not self.refuse(delivery, due=NEVER):
            return False
        self.refused[delivery.token.position] = due
        return True

    def forget_refused(self) -> None:
        """They do not come again: nobody has them, so the stream has deleted them."""
        self.lost([each for each in self if each.token.position in self.refused])
        self.refused.clear()

    def give_back(self) -> list[Delivery]:
        """What was not given is for others from now on, and so is what was refused. Return the former, in order."""
        self.forget_refused()
        back = [each for each in self if self.is_lost(each)]
        self.lost(back)
        self.settled += len(back)
        return back

    def is_overdue(self, now: float) -> bool:
        """Return whether something refused should have come by now."""
        return any(due < now for due in self.refused.values())


class NatsReceiver:
    """The life of a receiver on one connection. Made by the consumer, which starts and ends it."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        group: str,
        *,
        prefetch: int,
        ack_wait: float,
        tell: Callable[[], None],
    ) -> None:
        """*tell* is called when something may be given, or it is over."""
        self.connection, self.in_flight, self._tell = connection, PulledMessages(prefetch), tell
        self.is_over = False
        self.why: str | None = None
        """What ended it, beside the connection."""
        self._client, self._stream, self._group = connection.client, stream, group
        self._prefetch, self._ack_wait = prefetch, ack_wait
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{group}"
        self._inbox = f"{self._client.new_inbox()}."
        self._is_open = False
        """The gate."""
        self._pending = 0
        """How many are in flight at anybody, when it was last asked."""
        self._last: int | None = None
        """The number of the latest delivery."""
        self._request, self._left = 0, 0
        self._said: str | None = None
        self._heard, self._has_room, self._doubt = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._subscription: Any = None
        self._tasks: list[asyncio.Task[None]] = []
        self._prolonged_at = monotonic()
        connection.when_closed = self.end

    async def begin(self, pending: int) -> None:
        """Start receiving, *pending* messages being in flight at somebody."""
        self._pending = pending
        self._subscription = await self._client.subscribe(f"{self._inbox}*", cb=self._came)
        for work in (self._pull_on, self._watch_the_gate, self._prolong):
            self._tasks.append(asyncio.create_task(self._while_it_lasts(work)))

    def end(self, why: str | None = None) -> None:
        """Stop receiving; nothing is said to the server."""
        self.is_over, self.why = True, self.why or why
        self._tell()
        for event in (self._heard, self._has_room, self._doubt):
            event.set()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def give_all_back(self) -> None:
        """End it, and let the server have all that is in flight at once, what is on its way to us included."""
        self.end()
        with suppress(OSError, Error, TimeoutError):
            async with asyncio.timeout(LATE_SECONDS):
                await self._subscription.drain()
                for delivery in self.in_flight.ours():
                    await self._client.publish(delivery.token.receipt, NAK)
        self.in_flight = PulledMessages(self._prefetch)

    @property
    def is_forgotten(self) -> bool:
        """Were we silent for so long that the server may have given all we have to others?"""
        return self.is_over or monotonic() - self._prolonged_at >= self._ack_wait

    def give(self, limit: int) -> list[Delivery]:
        """Return what may be given now."""
        return self.in_flight.give(limit, monotonic()) if self._is_open and not self.is_forgotten else []

    async def say(self, delivery: Delivery, word: bytes) -> None:
        """Say something of a message. Lost with the connection; then it comes again."""
        with suppress(OSError, Error):
            await self._client.publish(delivery.token.receipt, word)
        self._has_room.set()
        if self.in_flight.refused:
            self._doubt.set()

    async def _while_it_lasts(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # The library swallows a cancellation here and there: the flag is what counts.
        while not self.is_over:
            try:
                await work()
            except (TimeoutError, OSError, Error) as exc:
                if not self.connection.is_open:
                    self.end(str(exc))
                await asyncio.sleep(GATE_SECONDS)

    async def _pull_on(self) -> None:
        room = self._room()
        if room <= 0:
            self._has_room.clear()
            await self._has_room.wait()
            return
        self._request, self._left, self._said = self._request + 1, room, None
        wish = {"batch": room, "expires": int(PULL_SECONDS * 1e9)}
        await self._client.publish(self._next, json.dumps(wish).encode(), f"{self._inbox}{self._request}")
        await self._understand(await self._end_of_the_request())

    async def _end_of_the_request(self) -> str | None:
        """Wait until all came, or it is over; what the server said to that."""
        until = monotonic() + PULL_SECONDS + LATE_SECONDS
        while not self._is_ended() and monotonic() < until:
            self._heard.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(until - monotonic()):
                    await self._heard.wait()
        return self._said

    def _is_ended(self) -> bool:
        return self._left <= 0 or self._said is not None or self.is_over

    def _room(self) -> int:
        in_flight = self.in_flight
        if not self._is_open:
            # All that is in flight at anybody must come to us, be it more than the prefetch.
            return max(self._prefetch, self._pending) - len(in_flight)
        room = self._prefetch - len(in_flight)
        if in_flight.refused:
            # What is refused comes again only when it is asked for, and others may wait behind it.
            return max(room, len(in_flight.refused))
        return room if not in_flight.waiting or room >= self._prefetch // 2 else 0

    async def _understand(self, said: str | None) -> None:
        """Why the server ended the pull request, where it did."""
        if not said or said.partition(" ")[0] in _END:
            return
        if _TURNED_AWAY in said.lower().replace(" ", ""):
            # Another of the group receives. What we were not given yet is for it, lest it waits for us and we for it.
            self._is_open, self._last = False, None
            for delivery in self.in_flight.give_back():
                await self._client.publish(delivery.token.receipt, NAK)
            await asyncio.sleep(STANDBY_SECONDS)
            return
        self.end(f"the server ended the receiving: {said}")

    async def _came(self, msg: Msg) -> None:
        if not msg.reply:
            if msg.headers and msg.subject == f"{self._inbox}{self._request}" and msg.headers.get("Status") != _BEAT:
                self._said = f"{msg.headers.get('Status')} {msg.headers.get('Description', '')}"
                self._heard.set()
            return
        facts = msg.metadata
        if self._last is None or facts.sequence.consumer != self._last + 1:
            self._is_open = False
        self._last = facts.sequence.consumer
        message, source, fault = message_of(msg.headers, msg.data)
        token = InFlightMessage(facts.sequence.stream, msg.reply, message.key)
        self.in_flight.arrive(Delivery(message, source, msg.subject, facts.num_delivered - 1, fault, token))
        self._left -= 1
        if self._left <= 0:
            self._heard.set()
        if self._is_open:
            self._tell()
        else:
            self._doubt.set()

    async def _watch_the_gate(self) -> None:
        if self.in_flight.waiting and not self._is_open:
            if not await self._ask():
                await asyncio.sleep(GATE_SECONDS)
            return
        if self.in_flight.is_overdue(monotonic() - OVERDUE_SECONDS):
            await self._ask()
        self._doubt.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(OVERDUE_SECONDS if self.in_flight.refused else None):
                await self._doubt.wait()

    async def _ask(self) -> bool:
        """Is all that is in flight at anybody in flight here? Then the gate is open."""
        ours, settled, last = len(self.in_flight), self.in_flight.settled, self._last
        self._pending = await self._in_flight_at_anybody()
        # What came or went meanwhile may be in the answer or not: then it is asked again.
        is_all_ours = self._pending == ours and settled == self.in_flight.settled and last == self._last
        if is_all_ours:
            self.in_flight.forget_refused()
            self._is_open = True
            self._tell()
        self._has_room.set()
        return is_all_ours

    async def _in_flight_at_anybody(self) -> int:
        found = await self._client.jetstream(timeout=LATE_SECONDS).consumer_info(self._stream, self._group)
        return int(found.num_ack_pending or 0)

    async def _prolong(self) -> None:
        await asyncio.sleep(self._ack_wait * _PROLONG_SHARE)
        if self.is_forgotten:
            self.end("this process did not run for longer than ack_wait, and others may have what it had in flight")
            return
        self._prolonged_at = monotonic()
        for delivery in self.in_flight.ours():
            await self._client.publish(delivery.token.receipt, PROGRESS)
