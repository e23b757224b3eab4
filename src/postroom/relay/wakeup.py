"""How long to wait when there is nothing to do: a moment at first, then longer, up to a limit."""

from __future__ import annotations


class Backoff:
    """Doubling waits.

    >>> wait = Backoff(first=1, most=5)
    >>> [wait.next() for _ in range(4)], wait.total
    ([1, 2, 4, 5], 12.0)
    """

    def __init__(self, *, first: float, most: float) -> None:
        self._first, self._most = min(first, most), most
        self._next, self.total = self._first, 0.0

    @property
    def waited(self) -> bool:
        """Was there a wait since the last reset?"""
        return self.total > 0

    def next(self) -> float:
        """How long to wait now."""
        wait, self._next = self._next, min(2 * self._next, self._most)
        self.total += wait
        return wait

    def reset(self) -> None:
        """Something happened: begin with short waits again."""
        self._next, self.total = self._first, 0.0
