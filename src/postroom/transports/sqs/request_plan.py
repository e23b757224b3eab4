"""Which messages of a batch may go next, and together: never two of one key at once. Pure.

```
   key a   1 ─ 4 ─ 5      at the head: 1, 2, 3 ──▶ one request of up to ten
   key b   2 ─ 6          1 was sent: 4 comes to the head
   no key  3              2 was not: 6 is KEY_STOPPED
```

A request to SQS can fail in part, and then a later message of a key would have passed an earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Outcome, Sent
from postroom.transports.sqs.connection import BATCH, Queue

Pack = list[int]
"""The places of messages that go in one request."""


class Letter(NamedTuple):
    """A message, ready to go; or what is said of it without trying."""

    key: str | None
    goes_to: Queue | Outcome
    size: int = 0
    entry: dict[str, Any] = {}  # noqa: RUF012 - a tuple's default, never changed
    """What SQS is given."""


class Plan:
    """The messages of a batch that are still to go, and the outcomes of those that went."""

    def __init__(self, letters: Sequence[Letter]) -> None:
        self.outcomes: list[Outcome] = [NOT_STARTED] * len(letters)
        self._letters = letters
        self._behind: dict[int, deque[int]] = {}
        """What waits behind the message at the head of its key."""
        self._heads: dict[str, deque[int]] = {}
        """What may go now, by the URL of its queue."""
        self._alone: deque[int] = deque()
        """What was refused in company, and goes again by itself."""
        for places in _by_key([letter.key for letter in letters]):
            self._bring(deque(places))

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
        self.outcomes[place] = outcome
        behind = self._behind.pop(place)
        if isinstance(outcome, Sent):
            self._bring(behind)
        else:
            for later in behind:
                self.outcomes[later] = KEY_STOPPED

    def go_alone(self, pack: Pack) -> None:
        """SQS refused them all, perhaps for one among them."""
        self._alone.extend(pack)

    def stop(self, outcome: Outcome) -> None:
        """Nothing more goes: this is said of what would have gone."""
        while pack := self.next():
            for place in pack:
                self.settle(place, outcome)

    def _bring(self, places: deque[int]) -> None:
        """Put the first of them at the head, unless it is known without sending that it will not be sent."""
        if not places:
            return
        head = places.popleft()
        letter = self._letters[head]
        self._behind[head] = places
        if isinstance(letter.goes_to, Queue):
            self._heads.setdefault(letter.goes_to.url, deque()).append(head)
        else:
            self.settle(head, letter.goes_to)

    def _fitting(self, heads: deque[int]) -> Iterator[int]:
        """Take from the left as many as one request may have, of their number and of their size."""
        number, size = 0, 0
        while heads and number < BATCH:
            letter = self._letters[heads[0]]
            number, size = number + 1, size + letter.size
            if number > 1 and isinstance(letter.goes_to, Queue) and size > letter.goes_to.largest_batch:
                return
            yield heads.popleft()


def _by_key(keys: Sequence[str | None]) -> list[list[int]]:
    """The places, those of one key together and in order; each without a key by itself."""
    chains: dict[str | int, list[int]] = {}
    for place, key in enumerate(keys):
        chains.setdefault(place if key is None else key, []).append(place)
    return list(chains.values())
