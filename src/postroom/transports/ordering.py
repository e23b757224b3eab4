"""The order of keys within one batch: what may go now, and what stays because an earlier one of its key failed. Pure.

```
   key a   0 ─ 3 ─ 4      first may go: 0, 1, 2
   key b   1 ─ 5          0 was sent: 3 may go
   no key  2              1 was not sent: 5 is KEY_STOPPED
```

A message is named by its place in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Outcome, Sent


def by_key(keys: Sequence[str | None]) -> tuple[list[int], dict[int, int]]:
    """Return the first message of each key, with all that have none; and for each message the next of its key, if there is one.

    >>> by_key(["a", None, "a", "b", "a"])
    ([0, 1, 3], {0: 2, 2: 4})
    """
    first: list[int] = []
    following: dict[int, int] = {}
    latest: dict[str, int] = {}
    for place, key in enumerate(keys):
        if key is None:
            first.append(place)
            continue
        if (earlier := latest.get(key)) is None:
            first.append(place)
        else:
            following[earlier] = place
        latest[key] = place
    return first, following


class KeyOrder:
    """A batch in which one message of each key is under way at a time, and the first that is not Sent stops its key.

    `first` may go at once, side by side. What may go after a message is the answer of `settle`."""

    def __init__(self, keys: Sequence[str | None]) -> None:
        self.outcomes: list[Outcome] = [NOT_STARTED] * len(keys)
        self.first, self._next = by_key(keys)

    def settle(self, place: int, outcome: Outcome) -> int | None:
        """Note what became of a message. Return the next message of its key, which may go now; None where there is none, or
        where this one was not sent: then all behind it are KEY_STOPPED."""
        self.outcomes[place] = outcome
        if isinstance(outcome, Sent):
            return self._next.get(place)
        for later in self.behind(place):
            self.outcomes[later] = KEY_STOPPED
        return None

    def behind(self, place: int) -> Iterator[int]:
        """Return the later messages of a message's key, in their order."""
        later = self._next.get(place)
        while later is not None:
            yield later
            later = self._next.get(later)
