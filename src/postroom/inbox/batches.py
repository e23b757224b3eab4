"""Who goes together: a batch is made of the heads of lines, so that no key is ever in two hands at once. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from postroom.contracts.transport import Delivery
from postroom.inbox.key_queues import KeyQueues


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
