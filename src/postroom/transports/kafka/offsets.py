"""The records fetched from the partitions that are ours, and how far each partition is. No I/O; two threads may use it.

```
   fetched ──▶ waiting ──▶ given ──▶ done       committed up to the first record of its partition that is not
                  ▲           │
                  └─ refused ─┘                 in order; of a key of a partition nothing while an earlier one waits
```
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import NamedTuple

from postroom.contracts.transport import Delivery
from postroom.transports.inflight import InFlight, InFlightMessage
from postroom.transports.kafka.decoding import Read

WAITING_MIN = 1_000
"""So many records at least are kept waiting here. A key that is held up stops others only when it alone has so many."""
WAITING_BYTES = 16 * 1024 * 1024


class Done(NamedTuple):
    """Everything of a partition before this offset is done."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True, eq=False)
class Record:
    """A record that was fetched."""

    partition: PartitionOffsets
    offset: int
    is_done: bool = False


@dataclass(slots=True, eq=False)
class PartitionOffsets:
    """A partition that is ours."""

    topic: str
    number: int
    end: int | None = None
    """The offset after the last record fetched."""
    told: int | None = None
    """What was committed last, as far as we know."""
    fetched: int = 0
    """How many records were, since it is ours."""
    line: deque[Record] = field(default_factory=deque)
    """Fetched, in order, from the first that is not done."""

    def add(self, offset: int) -> Record:
        """Note that the record at this offset was fetched. Whoever calls asks `is_behind` first."""
        record = Record(self, offset)
        self.line.append(record)
        self.fetched += 1
        self.end = offset + 1
        return record

    def is_behind(self, offset: int) -> bool:
        """Return whether a record at or after this offset was fetched before. Then the log is another one of that name."""
        return self.end is not None and offset < self.end

    def finish(self, record: Record) -> None:
        """Note that it is done, and so may be all of the first ones."""
        record.is_done = True
        while self.line and self.line[0].is_done:
            self.line.popleft()

    @property
    def done_before(self) -> int | None:
        """Everything before this offset is done: what may be committed. None: nothing was fetched."""
        return self.line[0].offset if self.line else self.end


class FetchedRecords:
    """The partitions that are ours, and the records of them that are in flight."""

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._waiting_max = max(prefetch, WAITING_MIN)
        self._lock = RLock()
        self._partitions: dict[tuple[str, int], PartitionOffsets] = {}
        self._in_flight = InFlight[Record](prefetch)
        """In the order in which they were fetched, over all partitions."""
        self._numbers = count()
        self._bytes = 0
        """Of the records that wait."""

    # ── the thread that fetches ──

    def gain(self, partitions: Iterable[tuple[str, int]]) -> None:
        """These are ours from now on."""
        with self._lock:
            for topic, number in partitions:
                self._partitions[topic, number] = PartitionOffsets(topic, number)

    def lose(self, partitions: Iterable[tuple[str, int]]) -> list[Done]:
        """These are not ours any more, nor are their records. Return how far each was, where that was not told yet."""
        with self._lock:
            lost = [found for each in partitions if (found := self._partitions.pop(each, None)) is not None]
            self._forget(lost)
            return _untold(lost)

    def lose_all(self) -> None:
        """Nothing is ours any more."""
        self.lose(list(self._partitions))

    def add(self, topic: str, partition: int, offset: int, read: Read) -> None:
        """This record was fetched. It is left out where the partition is not ours."""
        with self._lock:
            ours = self._partitions.get((topic, partition))
            if ours is None:
                return
            if ours.is_behind(offset):
                # The topic was made again. What is in flight is of the old one, and must not be committed in the new one.
                self._forget([ours])
                ours = self._partitions[topic, partition] = PartitionOffsets(topic, partition)
            # Kafka counts no deliveries. Whoever had this partition before had no more than a prefetch in flight.
            doubtful = ours.fetched < self._prefetch
            message = read.message
            key = None if message.key is None else (ours, message.key)
            token = InFlightMessage(next(self._numbers), ours.add(offset), key)
            delivery = Delivery(message, read.source, topic, 0, read.fault, token, doubtful)
            self._in_flight.arrive(delivery)
            self._bytes += _size(delivery)

    def is_full(self) -> bool:
        """Return whether nothing should be fetched for now."""
        return self._in_flight.waiting >= self._waiting_max or self._bytes >= WAITING_BYTES

    def has_room(self) -> bool:
        """Return whether there is so much room that fetching is worth beginning again."""
        return self._in_flight.waiting <= self._waiting_max // 2 and self._bytes <= WAITING_BYTES // 2

    def is_busy(self) -> bool:
        """Return whether anything is in flight."""
        return len(self._in_flight) > 0

    def untold(self) -> list[Done]:
        """Return what is to be committed. It counts as told from now on, until `not_told`."""
        with self._lock:
            return _untold(self._partitions.values())

    def not_told(self, partitions: Iterable[tuple[str, int]]) -> None:
        """The commit failed."""
        with self._lock:
            for each in partitions:
                if each in self._partitions:
                    self._partitions[each].told = None

    # ── whoever handles ──

    def give(self, limit: int, now: float) -> list[Delivery]:
        """Return the next deliveries, no more than the prefetch has room for."""
        with self._lock:
            given = self._in_flight.give(limit, now)
            self._bytes -= sum(map(_size, given))
            return given

    def next_due(self, now: float) -> float:
        """Return when the next of those that were refused becomes due; infinite when there is none."""
        with self._lock:
            return self._in_flight.next_due(now)

    def is_lost(self, delivery: Delivery) -> bool:
        """Return whether it is not in flight by this delivery."""
        return self._in_flight.is_lost(delivery)

    def settle(self, deliveries: Sequence[Delivery]) -> None:
        """These are done."""
        with self._lock:
            for delivery in self._in_flight.settle(deliveries):
                record: Record = delivery.token.receipt
                record.partition.finish(record)

    def refuse(self, delivery: Delivery, due: float) -> None:
        """It is to be delivered again, not before then, and before all that is behind it with its key."""
        with self._lock:
            if self._in_flight.refuse(delivery, due=due):
                self._bytes += _size(delivery)

    def _forget(self, partitions: Sequence[PartitionOffsets]) -> None:
        if partitions:
            lost = [each for each in self._in_flight if each.token.receipt.partition in partitions]
            self._bytes -= sum(_size(each) for each in lost if self._in_flight.is_lost(each))  # given ones do not wait
            self._in_flight.lost(lost)


def _untold(partitions: Iterable[PartitionOffsets]) -> list[Done]:
    found: list[Done] = []
    for each in partitions:
        offset = each.done_before
        if offset is not None and offset != each.told:
            each.told = offset
            found.append(Done(each.topic, each.number, offset))
    return found


def _size(delivery: Delivery) -> int:
    return len(delivery.message.body or b"")
