"""What a receiver has in flight: messages that arrived and are not settled. No I/O, and time is an argument.

```
   arrive ──▶ waiting ──▶ give ──▶ given ──▶ settle       it is done
                 ▲                   │
                 ├──── refuse ───────┤                    it waits until it is due
                 └──── take_back ────┘                    it was not handed out after all
                                           lost           the broker has it, in whatever state it was here
```

Messages are given in the order of their positions. Behind a message that waits until it is due, no message of its key is given.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from postroom.contracts.transport import Delivery

ALWAYS, NEVER = float("-inf"), float("inf")

Receipt = TypeVar("Receipt")


@dataclass(slots=True, eq=False)
class InFlightMessage(Generic[Receipt]):
    """The token of a delivery that is in flight, by which a delivery is known again. A message that is refused and given again
    has another token, so that what is said of the first delivery says nothing of the second."""

    position: Any
    """Where it stands in the order in which messages are given: a number, or a tuple of numbers. No two have the same."""
    receipt: Receipt
    """What the broker knows this message by."""
    key: Hashable = None
    """Messages with the same key keep their order; None: this one has no order to keep."""
    due: float = ALWAYS
    """It is not given before this time. NEVER: only after it has arrived again."""
    turn: int = 0
    """How often it was given before, since it arrived."""


class InFlight(Generic[Receipt]):
    """The messages that one receiver has in flight. The token of each delivery in it is an `InFlightMessage`."""

    def __init__(self, prefetch: int | None = None) -> None:
        """At most *prefetch* messages are given at a time; None: as many as are asked for."""
        self._prefetch = prefetch
        self._given: dict[Any, Delivery] = {}
        """By position."""
        self._fresh: deque[Delivery] = deque()
        """Never given, in order, and all of them behind those in `_back`."""
        self._back: list[Delivery] = []
        """In order: what was refused, what was found to be blocked, and what arrived later than what is behind it."""

    def __len__(self) -> int:
        return len(self._given) + self.waiting

    def __iter__(self) -> Iterator[Delivery]:
        """All of them, in order."""
        return iter(sorted((*self._given.values(), *self._back, *self._fresh), key=_position))

    @property
    def waiting(self) -> int:
        """How many are here and not given."""
        return len(self._fresh) + len(self._back)

    @property
    def given(self) -> int:
        """How many are given and not settled."""
        return len(self._given)

    def is_lost(self, delivery: Delivery) -> bool:
        """Return True unless this delivery is given now: not settled, refused or lost since."""
        token = delivery.token
        given = self._given.get(token.position)
        return given is None or given.token is not token

    def arrive(self, delivery: Delivery) -> None:
        """The broker delivered it.

        If a message at this position is given already, it stays given, and has the newer receipt from now on. If one is
        waiting, the newer takes its place, and still waits until the older would have been due, unless that was never."""
        position = delivery.token.position
        if (given := self._given.get(position)) is not None:
            given.token.receipt = delivery.token.receipt
            return
        last = self._fresh[-1] if self._fresh else self._back[-1] if self._back else None
        if last is None or position > last.token.position:
            self._fresh.append(delivery)
        else:
            self._insert(delivery)

    def give(self, limit: int, now: float) -> list[Delivery]:
        """Return the next deliveries, at most *limit* and no more than the prefetch has room for. They are now given."""
        room = limit if self._prefetch is None else min(limit, self._prefetch - len(self._given))
        if room <= 0 or not (self._fresh or self._back):
            return []
        taken, blocked = self._take_back_due(room, now)
        fresh, back = self._fresh, self._back
        while fresh and len(taken) < room:
            delivery = fresh.popleft()
            if blocked and delivery.token.key in blocked:
                back.append(delivery)
            else:
                taken.append(delivery)
        for delivery in taken:
            self._given[delivery.token.position] = delivery
        return taken

    def settle(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """These are done. Return those that were given until now: of the others, the broker must not be told."""
        given = self._given
        settled: list[Delivery] = []
        for delivery in deliveries:
            token = delivery.token
            found = given.get(token.position)
            if found is not None and found.token is token:
                del given[token.position]
                settled.append(found)
        return settled

    def refuse(self, delivery: Delivery, *, due: float) -> bool:
        """It is to be given again, not before *due*. Return False, and do nothing, if it is not given now."""
        for given in self.settle((delivery,)):
            held: InFlightMessage[Receipt] = given.token
            again = InFlightMessage(held.position, held.receipt, held.key, due, held.turn + 1)
            self._insert(replace(given, redelivered=given.redelivered + 1, token=again))
            return True
        return False

    def take_back(self, deliveries: Iterable[Delivery]) -> None:
        """Those of these that are given were not handed out after all: they wait, as they did before."""
        for delivery in self.settle(deliveries):
            self._insert(delivery)

    def behind(self, delivery: Delivery) -> list[Delivery]:
        """Return this delivery, if it is in flight, and all that are behind it and have its key, in order."""
        held: InFlightMessage[Receipt] = delivery.token
        of_key = [each for each in self if each.token is held or (held.key is not None and each.token.key == held.key)]
        tokens = [each.token for each in of_key]
        return of_key[tokens.index(held) :] if held in tokens else []

    def lost(self, deliveries: Iterable[Delivery]) -> None:
        """The broker does not count these as ours any more: they are not in flight here, in whatever state they were."""
        all_of_them = list(deliveries)
        gone = {each.token for each in all_of_them} - {each.token for each in self.settle(all_of_them)}
        if gone:
            self._fresh = deque(each for each in self._fresh if each.token not in gone)
            self._back = [each for each in self._back if each.token not in gone]

    def lose_all(self) -> list[Delivery]:
        """Nothing is in flight any more. Return what was, in order."""
        everything = list(self)
        self._given.clear()
        self._fresh.clear()
        self._back.clear()
        return everything

    def next_due(self, now: float) -> float:
        """Return when the first of those that were refused will be due; NEVER if none is waited for."""
        return min((each.token.due for each in self._back if each.token.due > now), default=NEVER)

    def _take_back_due(self, room: int, now: float) -> tuple[list[Delivery], set[Hashable]]:
        """Take those out of `_back` that are due and not blocked. Return them, and the keys of those that stay."""
        taken: list[Delivery] = []
        blocked: set[Hashable] = set()
        if not self._back:
            return taken, blocked
        stay: list[Delivery] = []
        for delivery in self._back:
            held = delivery.token
            if len(taken) < room and held.due <= now and held.key not in blocked:
                taken.append(delivery)
            else:
                stay.append(delivery)
                if held.key is not None:
                    blocked.add(held.key)
        self._back = stay
        return taken, blocked

    def _insert(self, delivery: Delivery) -> None:
        """Let it wait at its place in the order."""
        held: InFlightMessage[Receipt] = delivery.token
        if self._fresh and held.position >= self._fresh[0].token.position:
            self._back.extend(self._fresh)
            self._fresh.clear()
        index = bisect_left(self._back, held.position, key=_position)
        if index < len(self._back) and _position(older := self._back[index]) == held.position:
            held.turn = older.token.turn
            held.due = ALWAYS if older.token.due == NEVER else older.token.due
            self._back[index] = delivery
        else:
            self._back.insert(index, delivery)


def _position(delivery: Delivery) -> Any:
    return delivery.token.position
