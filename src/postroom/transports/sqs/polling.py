"""Asking for messages: polls that outlive whoever asked, since what a poll that is broken off was given is hidden for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, TypeAlias
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from postroom.contracts.transport import Failed, Outcome, Unavailable
from postroom.transports.sqs.connection import BATCH, Queue
from postroom.transports.sqs.outcomes import PAUSE, UNANSWERED, of_request

Raw: TypeAlias = Mapping[str, Any]
LONGEST_SECONDS = 20
"""SQS lets nobody wait longer."""
ANSWER_SECONDS = 10.0
"""So much later, at most, the answer is here."""
POLLS_MAX = 8
TRIES = 2
SYSTEM = ["ApproximateReceiveCount", "MessageGroupId"]


class Polling:
    """The polls that are under way. What they bring is given to *bring*, in order."""

    def __init__(self, sqs: Any, queue: Queue, bring: Callable[[list[Raw]], None], tell: Callable[[], None]) -> None:
        """*tell* is called when a poll has ended, whatever it brought."""
        self._sqs, self._queue, self._bring, self._tell = sqs, queue, bring, tell
        self._under_way: dict[asyncio.Task[None], int] = {}
        self._eager = 1
        self.trouble: Outcome | None = None
        """Why the last one brought nothing, if SQS did not even answer."""
        self.error: BaseException | None = None
        """What a poll raised that nobody thought of."""

    def ask(self, room: int, wait: float) -> None:
        """See that polls are under way for up to so many messages: one, or more while each comes back full."""
        room -= sum(self._under_way.values())
        while room > 0 and len(self._under_way) < self._eager:
            number = min(room, BATCH)
            task = asyncio.get_running_loop().create_task(self._poll(number, min(ceil(wait), LONGEST_SECONDS)))
            self._under_way[task] = number
            task.add_done_callback(self._ended)
            room -= number

    async def end(self, seconds: float) -> None:
        """Let those under way come to their end; break off what takes longer."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
            left = list(self._under_way)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self._under_way.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if not task.cancelled():
            self.error = self.error or task.exception()
        self._tell()

    async def _poll(self, number: int, wait: int) -> None:
        # With the same name, SQS gives the same messages again if its first answer was lost.
        named = {"ReceiveRequestAttemptId": str(uuid4())} if self._queue.is_fifo else {}
        trouble: Outcome | None = None
        for _ in range(TRIES):
            try:
                async with asyncio.timeout(wait + ANSWER_SECONDS):
                    answer = await self._sqs.receive_message(
                        QueueUrl=self._queue.url,
                        MaxNumberOfMessages=number,
                        WaitTimeSeconds=wait,
                        VisibilityTimeout=self._queue.hold,
                        MessageSystemAttributeNames=SYSTEM,
                        MessageAttributeNames=["All"],
                        **named,
                    )
            except (BotoCoreError, ClientError, OSError) as exc:
                trouble = of_request(exc, self._queue.name, of_the_url=True)
                if not isinstance(trouble, Failed) or trouble is UNANSWERED:
                    break
            else:
                self._came(answer.get("Messages", []), number)
                return
        if isinstance(trouble, Unavailable) and trouble.code == "THROTTLED":
            await asyncio.sleep(PAUSE.total_seconds())
        else:
            self.trouble = trouble

    def _came(self, messages: list[Raw], number: int) -> None:
        self._eager = min(2 * self._eager, POLLS_MAX) if len(messages) == number else 1
        self._bring(messages)
