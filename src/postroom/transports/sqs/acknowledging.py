"""What is done with messages in flight, ten to a request: delete them, or say when others may see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from postroom.transports.sqs.connection import BATCH, Queue

TRIES = 3
PAUSE_SECONDS = 0.2
LONGEST_SECONDS = 12 * 60 * 60
"""SQS hides a message no longer."""
RENEW_AFTER = 1 / 3
"""Of its time, after which a lease is prolonged: two more tries fit in before it runs out."""
TRUST = 0.9
"""Of the time that SQS gives: it began to run before the message was here."""


@dataclass(slots=True, eq=False)
class Lease:
    """The receipt of a message: until when SQS keeps it from others."""

    handle: str
    """What SQS wants to hear when something is done with it."""
    seconds: float
    """For so long, each time."""
    renewed: float
    until: float
    """By our clock; then others may get it."""

    def has_run_out(self, now: float) -> bool:
        """Return whether others may have the message."""
        return now >= self.until

    def is_to_be_renewed(self, now: float) -> bool:
        """Return whether it is time to prolong it."""
        return now - self.renewed >= RENEW_AFTER * self.seconds

    def renew(self, asked_at: float) -> None:
        """SQS prolonged it, at that moment or later."""
        self.renewed, self.until = asked_at, asked_at + self.seconds


def lease(handle: str, seconds: float, now: float) -> Lease:
    """The lease of a message that arrived now."""
    return Lease(handle, seconds, now, now + TRUST * seconds)


class Acknowledging:
    """Requests about messages that were received. That one is in vain is no error: the message comes again."""

    def __init__(self, sqs: Any, queue: Queue) -> None:
        self._sqs, self._queue = sqs, queue

    async def delete(self, leases: Sequence[Lease], *, seconds: float) -> None:
        """They never come again. What cannot be told to SQS in this time comes again."""

        async def ask(entries: list[dict[str, Any]]) -> Any:
            return await self._sqs.delete_message_batch(QueueUrl=self._queue.url, Entries=entries)

        left = list(leases)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for pause in range(TRIES):
                    await asyncio.sleep(pause * PAUSE_SECONDS)
                    _, refused = await _in_tens(ask, left, {})
                    left = [each for each in left if refused.get(each) is False]
                    if not left:
                        return

    async def show(self, leases: Sequence[Lease], *, after: float, seconds: float) -> tuple[set[Lease], set[Lease]]:
        """Others see them after so long, and not before: which of them SQS did so with, and which it says are not ours.

        Of the others nothing is known: there was no answer in *seconds*."""

        async def ask(entries: list[dict[str, Any]]) -> Any:
            return await self._sqs.change_message_visibility_batch(QueueUrl=self._queue.url, Entries=entries)

        wanted = {"VisibilityTimeout": min(int(after), LONGEST_SECONDS)}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                done, refused = await _in_tens(ask, leases, wanted)
                return done, {each for each, is_final in refused.items() if is_final}
        return set(), set()


async def _in_tens(
    ask: Callable[[list[dict[str, Any]]], Awaitable[Any]], leases: Sequence[Lease], more: dict[str, Any]
) -> tuple[set[Lease], dict[Lease, bool]]:
    """Ask for all, ten to a request, at once: what was done; and what was not, with whether that is final."""
    done: set[Lease] = set()
    not_done: dict[Lease, bool] = {}

    async def request(some: Sequence[Lease]) -> None:
        entries = [{"Id": str(place), "ReceiptHandle": each.handle, **more} for place, each in enumerate(some)]
        try:
            answer = await ask(entries)
        except (BotoCoreError, ClientError, OSError):
            not_done.update(dict.fromkeys(some, False))
            return
        done.update(some[int(entry["Id"])] for entry in answer.get("Successful", ()))
        failed = {some[int(entry["Id"])]: bool(entry.get("SenderFault")) for entry in answer.get("Failed", ())}
        not_done.update(failed)

    async with asyncio.TaskGroup() as requests:
        for begin in range(0, len(leases), BATCH):
            requests.create_task(request(leases[begin : begin + BATCH]))
    return done, not_done
