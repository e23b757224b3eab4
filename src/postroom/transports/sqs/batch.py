"""One batch on its way: which messages go together in one request, many requests at once, each answer read message by message.

```
   key a   1 ─ 4 ─ 5      at the head: 1, 2, 3 ──▶ one request of up to ten
   key b   2 ─ 6          1 was sent: 4 comes to the head
   no key  3              2 was not: 6 is KEY_STOPPED
```

A request to SQS can fail in part, and then a later message of a key would have passed an earlier one. So two of one key are
never in one request, nor in two at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from postroom.clock import monotonic
from postroom.contracts.transport import Outcome, Rejected, Sent, Unavailable
from postroom.message import Message
from postroom.transports.ordering import KeyOrder
from postroom.transports.publishing import Deadline, timeout_at
from postroom.transports.sqs.connection import BATCH, Queue
from postroom.transports.sqs.encoding import ATTRIBUTES, ATTRIBUTES_SIZE, body_of, group_of
from postroom.transports.sqs.outcomes import NOT_NAMED, may_be_of_one, of_entry, of_request

AT_ONCE = 16
"""How many requests of one batch are under way at once."""
START_SHARE = 0.5
"""Nothing is begun in the second half of the time: it would have less of it than the first, and fail for that alone."""
SENT = Sent()

Pack = list[int]
"""The places of messages that go in one request."""


class Letter(NamedTuple):
    """A message, ready to go; or what is said of it without trying."""

    key: str | None
    goes_to: Queue | Outcome
    size: int = 0
    entry: dict[str, Any] = {}  # noqa: RUF012 - a tuple's default, never changed
    """What SQS is given."""


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

    def __init__(self, sqs: Any, letters: Sequence[Letter], of_the_url: str | None, by: Deadline) -> None:
        self._sqs, self._letters, self._of_the_url, self._by = sqs, letters, of_the_url, by
        self._plan = Plan(letters)

    async def send(self) -> list[Outcome]:
        """Send all of it, as far as the time goes, and return the outcomes."""
        last_start, under_way = self._by.after(START_SHARE), set[asyncio.Task[None]]()
        try:
            while True:
                while len(under_way) < AT_ONCE and monotonic() < last_start and (pack := self._plan.next()):
                    under_way.add(asyncio.ensure_future(self._request(pack)))
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
            raise TypeError(f"{queue} is not a queue")
        entries = [{"Id": str(place), **self._letters[place].entry} for place in pack]
        try:
            async with timeout_at(self._by.until):
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


class Plan:
    """The messages of a batch that are still to go, and the outcomes of those that went."""

    def __init__(self, letters: Sequence[Letter]) -> None:
        self._letters = letters
        self._order = KeyOrder([letter.key for letter in letters])
        self.outcomes = self._order.outcomes
        self._heads: dict[str, deque[int]] = {}
        """What may go now, by the URL of its queue."""
        self._alone: deque[int] = deque()
        """What was refused in company, and goes again by itself."""
        for place in self._order.first:
            self._bring(place)

    def next(self) -> Pack | None:
        """What goes in the next request; None when nothing may go now."""
        if self._alone:
            return [self._alone.popleft()]
        for url in list(self._heads):
            heads = self._heads[url]
            pack = list(self._fitting(heads))
            if not heads:
                del self._heads[url]
            else:
                self._heads[url] = self._heads.pop(url)  # the others first, the next time
            if pack:
                return pack
        return None

    def settle(self, place: int, outcome: Outcome) -> None:
        """This became of it: the next of its key may go, or none of them may."""
        if (later := self._order.settle(place, outcome)) is not None:
            self._bring(later)

    def go_alone(self, pack: Pack) -> None:
        """SQS refused them all, perhaps for one among them."""
        self._alone.extend(pack)

    def stop(self, outcome: Outcome) -> None:
        """Nothing more goes: this is said of what would have gone."""
        while pack := self.next():
            for place in pack:
                self.settle(place, outcome)

    def _bring(self, place: int) -> None:
        """Put this message at the head of its key, unless it is known without sending that it will not be sent."""
        goes_to = self._letters[place].goes_to
        if isinstance(goes_to, Queue):
            self._heads.setdefault(goes_to.url, deque()).append(place)
        else:
            self.settle(place, goes_to)

    def _fitting(self, heads: deque[int]) -> Iterator[int]:
        """Take from the left as many as one request may have, of their number and of their size."""
        number, size = 0, 0
        while heads and number < BATCH:
            letter = self._letters[heads[0]]
            number, size = number + 1, size + letter.size
            if number > 1 and isinstance(letter.goes_to, Queue) and size > letter.goes_to.largest_batch:
                return
            yield heads.popleft()
