"""What is in our hands: what was fetched, who has it, and what comes next. No I/O; two threads may use it.

```
   fetched ──▶ fresh ──▶ in hand ──▶ done         committed up to the first that is not
                 │          │
                 │          ▼ nack
                 └──────▶ back                    in order; of a key nothing while an earlier one waits
```
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from itertools import count
from threading import RLock
from typing import NamedTuple

from postroom.contracts.transport import Delivery
from postroom.transports.kafka.decoding import Read
from postroom.transports.kafka.offsets import Held, PartitionOffsets

WAITING_MIN = 1_000
"""So many records at least are kept waiting here. A key that is held up stops others only when it alone has so many."""
WAITING_BYTES = 16 * 1024 * 1024


class Done(NamedTuple):
    """Everything of a partition before this offset is done."""

    topic: str
    partition: int
    offset: int


class InFlight:
    """The partitions that are ours and what was fetched from them."""

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._waiting_max = max(prefetch, WAITING_MIN)
        self._lock = RLock()
        self._places: dict[tuple[str, int], PartitionOffsets] = {}
        self._fresh: deque[Held] = deque()
        """Never delivered."""
        self._back: list[Held] = []
        """Refused, or behind one of its key that was; in the order of arrival."""
        self._numbers = count()
        self._in_hand = self._bytes = 0

    # ── the thread that fetches ──

    def gain(self, partitions: Iterable[tuple[str, int]]) -> None:
        """These are ours from now on."""
        with self._lock:
            for topic, partition in partitions:
                self._places[topic, partition] = PartitionOffsets(topic, partition)

    def lose(self, partitions: Iterable[tuple[str, int]]) -> list[Done]:
        """These are no longer ours, nor is what was fetched from them. How far each was, where that was not told yet."""
        with self._lock:
            places = [place for each in partitions if (place := self._places.pop(each, None)) is not None]
            self._forget(places)
            return _untold(places)

    def lose_all(self) -> None:
        """Nothing is ours any more."""
        self.lose(list(self._places))

    def add(self, topic: str, partition: int, offset: int, read: Read) -> None:
        """This was fetched. It is nothing where the partition is not ours."""
        with self._lock:
            place = self._places.get((topic, partition))
            if place is None:
                return
            if place.is_behind(offset):
                # The topic was made anew. What is in hand is of the old one, and must not be committed in the new one.
                self._forget([place])
                place = self._places[topic, partition] = PartitionOffsets(topic, partition)
            # Kafka counts no deliveries. Whoever had this partition before had no more than a prefetch in hand.
            doubtful = place.fetched < self._prefetch
            held = Held(place, offset, next(self._numbers), read, is_doubtful=doubtful)
            place.add(held)
            self._fresh.append(held)
            self._bytes += held.size

    def is_full(self) -> bool:
        """Should nothing be fetched for now?"""
        return self._waits >= self._waiting_max or self._bytes >= WAITING_BYTES

    def has_room(self) -> bool:
        """Is there so much room that fetching is worth beginning again?"""
        return self._waits <= self._waiting_max // 2 and self._bytes <= WAITING_BYTES // 2

    def is_busy(self) -> bool:
        """Is anything in hand, or waiting?"""
        return bool(self._in_hand or self._waits)

    def untold(self) -> list[Done]:
        """What is to be committed. It counts as told from now on, until `not_told`."""
        with self._lock:
            return _untold(self._places.values())

    def not_told(self, partitions: Iterable[tuple[str, int]]) -> None:
        """The commit failed."""
        with self._lock:
            for each in partitions:
                if each in self._places:
                    self._places[each].told = None

    # ── whoever handles ──

    def take(self, limit: int, now: float) -> list[Delivery]:
        """The next ones, no more than the prefetch leaves room for."""
        with self._lock:
            room = min(limit, self._prefetch - self._in_hand)
            stopped: set[tuple[PartitionOffsets, str]] = set()
            taken = self._take_back(room, now, stopped)
            while len(taken) < room and self._fresh:
                held = self._fresh.popleft()
                if held.lane in stopped:
                    self._back.append(held)  # the newest of them all
                else:
                    taken.append(held)
            return [self._hand_out(held) for held in taken]

    def next_due(self, now: float) -> float:
        """When the next of those that were refused becomes due; infinite when there is none."""
        with self._lock:
            return min((held.due for held in self._back if held.due > now), default=float("inf"))

    def is_lost(self, delivery: Delivery) -> bool:
        """Is it not in hand by this delivery?"""
        held: Held = delivery.token
        return held.delivery is not delivery

    def finish(self, delivery: Delivery) -> None:
        """It is done."""
        with self._lock:
            if (held := self._let_go(delivery)) is not None:
                held.place.finish(held)

    def give_back(self, delivery: Delivery, due: float) -> None:
        """It is to be delivered again, not before then, and before all that is behind it in its lane."""
        with self._lock:
            if (held := self._let_go(delivery)) is not None:
                held.due = due
                insort(self._back, held, key=lambda each: each.number)
                self._bytes += held.size

    @property
    def _waits(self) -> int:
        return len(self._fresh) + len(self._back)

    def _take_back(self, room: int, now: float, stopped: set[tuple[PartitionOffsets, str]]) -> list[Held]:
        """Of those that came back, the ones whose turn it is; which lanes are stopped is noted."""
        if not self._back:
            return []
        taken: list[Held] = []
        stay: list[Held] = []
        for held in self._back:
            lane = held.lane
            if held.due <= now and lane not in stopped and len(taken) < room:
                taken.append(held)
            else:
                stay.append(held)
                if lane is not None:
                    stopped.add(lane)
        self._back = stay
        return taken

    def _hand_out(self, held: Held) -> Delivery:
        read = held.read
        delivery = Delivery(
            read.message, read.source, held.place.topic, held.deliveries, read.fault, held, held.is_doubtful
        )
        held.delivery, held.due = delivery, 0.0
        held.deliveries += 1
        self._in_hand += 1
        self._bytes -= held.size
        return delivery

    def _let_go(self, delivery: Delivery) -> Held | None:
        """Nobody has it any more; None when this delivery was not the one that had it."""
        held: Held = delivery.token
        if held.delivery is not delivery:
            return None
        held.delivery = None
        self._in_hand -= 1
        return held

    def _forget(self, places: Iterable[PartitionOffsets]) -> None:
        for place in places:
            place.is_lost = True
            for held in place.line:
                if held.delivery is not None:
                    self._let_go(held.delivery)
        self._fresh = deque(held for held in self._fresh if not held.place.is_lost)
        self._back = [held for held in self._back if not held.place.is_lost]
        self._bytes = sum(held.size for held in (*self._fresh, *self._back))


def _untold(places: Iterable[PartitionOffsets]) -> list[Done]:
    found: list[Done] = []
    for place in places:
        offset = place.done_before
        if offset is not None and offset != place.told:
            place.told = offset
            found.append(Done(place.topic, place.partition, offset))
    return found
