"""What is done with messages in hand, ten to a request: delete them, or say when others may see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from postroom.transports.sqs.connection import BATCH, Queue
from postroom.transports.sqs.inflight import InFlightMessage

TRIES = 3
PAUSE_SECONDS = 0.2
LONGEST_SECONDS = 12 * 60 * 60
"""SQS hides a message no longer."""


class Acknowledging:
    """Requests about messages that were received. That one is in vain is no error: the message comes again."""

    def __init__(self, sqs: Any, queue: Queue) -> None:
        self._sqs, self._queue = sqs, queue

    async def delete(self, holds: Sequence[InFlightMessage], *, seconds: float) -> None:
        """They never come again. What cannot be told to SQS in this time comes again."""

        async def ask(entries: list[dict[str, Any]]) -> Any:
            return await self._sqs.delete_message_batch(QueueUrl=self._queue.url, Entries=entries)

        left = list(holds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for pause in range(TRIES):
                    await asyncio.sleep(pause * PAUSE_SECONDS)
                    _, refused = await _in_tens(ask, left, {})
                    left = [hold for hold in left if refused.get(hold) is False]
                    if not left:
                        return

    async def show(
        self, holds: Sequence[InFlightMessage], *, after: float, seconds: float
    ) -> tuple[set[InFlightMessage], set[InFlightMessage]]:
        """Others see them after so long, and not before: which of them SQS did so with, and which it says are not ours.

        Of the others nothing is known: there was no answer in *seconds*."""

        async def ask(entries: list[dict[str, Any]]) -> Any:
            return await self._sqs.change_message_visibility_batch(QueueUrl=self._queue.url, Entries=entries)

        wanted = {"VisibilityTimeout": min(int(after), LONGEST_SECONDS)}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                done, refused = await _in_tens(ask, holds, wanted)
                return done, {hold for hold, is_final in refused.items() if is_final}
        return set(), set()


async def _in_tens(
    ask: Callable[[list[dict[str, Any]]], Awaitable[Any]], holds: Sequence[InFlightMessage], more: dict[str, Any]
) -> tuple[set[InFlightMessage], dict[InFlightMessage, bool]]:
    """Ask for all, ten to a request, at once: what was done; and what was not, with whether that is final."""
    done: set[InFlightMessage] = set()
    not_done: dict[InFlightMessage, bool] = {}

    async def request(some: Sequence[InFlightMessage]) -> None:
        entries = [{"Id": str(place), "ReceiptHandle": hold.handle, **more} for place, hold in enumerate(some)]
        try:
            answer = await ask(entries)
        except (BotoCoreError, ClientError, OSError):
            not_done.update(dict.fromkeys(some, False))
            return
        done.update(some[int(entry["Id"])] for entry in answer.get("Successful", ()))
        failed = {some[int(entry["Id"])]: bool(entry.get("SenderFault")) for entry in answer.get("Failed", ())}
        not_done.update(failed)

    async with asyncio.TaskGroup() as requests:
        for begin in range(0, len(holds), BATCH):
            requests.create_task(request(holds[begin : begin + BATCH]))
    return done, not_done
