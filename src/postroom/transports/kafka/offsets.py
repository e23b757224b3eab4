"""How far one partition is: what of it is not done yet, and what may be committed. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from postroom.contracts.transport import Delivery
from postroom.transports.kafka.decoding import Read


@dataclass(slots=True, eq=False)
class Held:
    """A record that was fetched and is not done."""

    place: PartitionOffsets
    offset: int
    number: int
    """In the order of arrival, over all partitions."""
    read: Read
    due: float = 0.0
    """When it may be delivered again."""
    deliveries: int = 0
    delivery: Delivery | None = None
    """By which it is in hand; None: it waits here, or is done, or lost."""
    is_done: bool = False
    is_doubtful: bool = False
    """It can have been in the hand of a receiver that died: Kafka does not say."""

    @property
    def size(self) -> int:
        return len(self.read.message.body or b"")

    @property
    def lane(self) -> tuple[PartitionOffsets, str] | None:
        """Records of one lane keep their order; None: it has none to keep."""
        key = self.read.message.key
        return None if key is None else (self.place, key)


@dataclass(slots=True, eq=False)
class PartitionOffsets:
    """A partition that is ours."""

    topic: str
    partition: int
    end: int | None = None
    """The offset after the last record fetched."""
    told: int | None = None
    """What was committed last, as far as we know."""
    is_lost: bool = False
    fetched: int = 0
    """How many records were, since it is ours."""
    line: deque[Held] = field(default_factory=deque)
    """Fetched, in order, from the first that is not done."""

    def add(self, held: Held) -> None:
        """It was fetched. Whoever calls looks for `is_behind` first."""
        self.line.append(held)
        self.fetched += 1
        self.end = held.offset + 1

    def is_behind(self, offset: int) -> bool:
        """Was something at or after this offset fetched before? Then the log is another one, of the same name."""
        return self.end is not None and offset < self.end

    def finish(self, held: Held) -> None:
        """It is done, and so may be all of the first ones."""
        held.is_done = True
        while self.line and self.line[0].is_done:
            self.line.popleft()

    @property
    def done_before(self) -> int | None:
        """Everything before this offset is done: what may be committed. None: nothing was fetched."""
        return self.line[0].offset if self.line else self.end
