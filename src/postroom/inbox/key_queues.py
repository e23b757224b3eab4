"""Which message comes after which: the messages of a key wait in a line, and different lines do not wait for each other.

A batch is made of the heads of lines, so that no key is handled in two places at once. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice, takewhile

from postroom.contracts.transport import Delivery


class KeyQueues:
    """Deliveries in hand, by key. A message without a key has a line of its own.

    >>> from postroom import Message
    >>> one, two = (Delivery(Message("x", key="a", data=n), "shop", "orders") for n in (1, 2))
    >>> lines = KeyQueues()
    >>> lines.add(one), lines.add(two)
    ('a', None)
    >>> lines.head("a") is one, lines.done("a"), lines.head("a") is two, lines.done("a")
    (True, True, True, False)
    """

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Delivery]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, delivery: Delivery) -> Hashable | None:
        """Put it at the end of its line; the line's key when it is the first there, and somebody must begin."""
        key = line_of(delivery)
        if key in self._lines:
            self._lines[key].append(delivery)
            return None
        self._lines[key] = deque([delivery])
        return key

    def head(self, key: Hashable) -> Delivery:
        """Whose turn it is."""
        return self._lines[key][0]

    def heads(self, key: Hashable, limit: int, fits: Callable[[Delivery], bool]) -> list[Delivery]:
        """The first ones of a line, as long as they fit together, and no more than *limit*; the head itself always does."""
        line = self._lines[key]
        return [line[0]] if len(line) == 1 else list(islice(takewhile(fits, line), limit))

    def done(self, key: Hashable, count: int = 1) -> bool:
        """The first of them are done with: is there another behind? If not, the line is gone."""
        line = self._lines[key]
        if len(line) == count:
            del self._lines[key]
            return False
        for _ in range(count):
            line.popleft()
        return True


def line_of(delivery: Delivery) -> Hashable:
    """The key of its line."""
    key = delivery.message.key
    return delivery if key is None or delivery.fault is not None else key


@dataclass(slots=True)
class Batch:
    """What one call of a handler takes."""

    deliveries: list[Delivery] = field(default_factory=list)
    taken: dict[Hashable, int] = field(default_factory=dict)
    """How many each line gave, what was lost on the way among them. They stay in their lines until they are done with."""


def gather(
    lines: KeyQueues,
    ready: deque[Hashable],
    limit: int,
    *,
    fits: Callable[[Delivery], bool],
    is_lost: Callable[[Delivery], bool],
) -> Batch:
    """The next batch of the lines that are ready: from each what stands at its head and fits, in order.

    >>> from postroom import Message
    >>> lines = KeyQueues()
    >>> for text in ("a1", "b1", "a2", "a3"):
    ...     _ = lines.add(Delivery(Message("x", key=text[0], data=text), "shop", "orders"))
    >>> ready = deque(["a", "b"])
    >>> batch = gather(lines, ready, 3, fits=lambda each: each.message.data != "a3", is_lost=lambda _: False)
    >>> [each.message.data for each in batch.deliveries], batch.taken, ready
    (['a1', 'a2', 'b1'], {'a': 2, 'b': 1}, deque([]))
    """
    batch = Batch()
    while ready and len(batch.deliveries) < limit:
        key = ready.popleft()
        heads = lines.heads(key, limit - len(batch.deliveries), fits)
        batch.taken[key] = len(heads)
        batch.deliveries += (each for each in heads if not is_lost(each))
    return batch
