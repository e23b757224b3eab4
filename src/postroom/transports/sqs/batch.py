"""One batch on its way: many requests at once, each answer read message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from postroom.contracts.transport import Outcome, Rejected, Sent, Unavailable
from postroom.message import Message
from postroom.transports.sqs.connection import Queue
from postroom.transports.sqs.encoding import ATTRIBUTES, ATTRIBUTES_SIZE, body_of, group_of
from postroom.transports.sqs.outcomes import NOT_NAMED, may_be_of_one, of_entry, of_request
from postroom.transports.sqs.request_plan import Letter, Pack, Plan

AT_ONCE = 16
"""How many requests of one batch are under way at once."""
SENT = Sent()


def letter_for(message: Message, goes_to: Queue | Outcome, source: str) -> Letter:
    """The message as its queue takes it; or what is said of it without trying."""
    if not isinstance(goes_to, Queue):
        return Letter(message.key, goes_to)
    body = body_of(message, source)
    size = ATTRIBUTES_SIZE + (len(body) if body.isascii() else len(body.encode()))
    if size > goes_to.largest:
        too_large = f"it has {size} bytes as an SQS message, and {goes_to.name!r} takes {goes_to.largest}"
        return Letter(message.key, Rejected("PAYLOAD_TOO_LARGE", too_large))
    entry = {"MessageBody": body, "MessageAttributes": ATTRIBUTES}
    if goes_to.is_fifo:
        # The id as well: if an answer is lost and the message sent again, SQS keeps the first one alone, for five minutes.
        entry |= {"MessageGroupId": group_of(message), "MessageDeduplicationId": message.id_text}
    return Letter(message.key, goes_to, size, entry)


class Batch:
    """A batch, and its outcomes as far as they are known."""

    def __init__(self, sqs: Any, letters: Sequence[Letter], of_the_url: str | None, deadline: float) -> None:
        self._sqs, self._letters, self._of_the_url, self._deadline = sqs, letters, of_the_url, deadline
        self._plan = Plan(letters)

    async def send(self, last_start: float) -> list[Outcome]:
        """All of it, as far as the time goes; nothing is begun after *last_start*."""
        loop, under_way = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        try:
            while True:
                while len(under_way) < AT_ONCE and loop.time() < last_start and (pack := self._plan.next()):
                    under_way.add(loop.create_task(self._request(pack)))
                if not under_way:
                    return self._plan.outcomes
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in under_way:
                task.cancel()

    async def _request(self, pack: Pack) -> None:
        """Send these, and settle each."""
        queue = self._letters[pack[0]].goes_to
        if not isinstance(queue, Queue):
            raise TypeError(f"{queue} is no queue")
        entries = [{"Id": str(place), **self._letters[place].entry} for place in pack]
        try:
            async with asyncio.timeout_at(self._deadline):
                answer = await self._sqs.send_message_batch(QueueUrl=queue.url, Entries=entries)
        except (BotoCoreError, ClientError, OSError) as exc:
            self._failed(pack, of_request(exc, queue.name, of_the_url=queue.name == self._of_the_url))
        else:
            self._answered(pack, answer)

    def _answered(self, pack: Pack, answer: Mapping[str, Any]) -> None:
        sent = {entry["Id"] for entry in answer.get("Successful", ())}
        failed = {entry["Id"]: entry for entry in answer.get("Failed", ())}
        for place in pack:
            if str(place) in sent:
                self._plan.settle(place, SENT)
            elif str(place) in failed:
                self._plan.settle(place, of_entry(failed[str(place)]))
            else:
                self._plan.settle(place, NOT_NAMED)

    def _failed(self, pack: Pack, outcome: Outcome) -> None:
        if len(pack) > 1 and may_be_of_one(outcome):
            self._plan.go_alone(pack)
            return
        for place in pack:
            self._plan.settle(place, outcome)
        if isinstance(outcome, Unavailable):
            # It is so for all of them. To ask once more for each would take the time of all.
            self._plan.stop(outcome)
