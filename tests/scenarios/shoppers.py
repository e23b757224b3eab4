"""Producers: threads that write an order and its messages in one transaction, over and over; some of it is rolled back."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from pathlib import Path
from typing import Self

from tests.scenarios.tills import open_till

from postroom.testing.journal import Name

KEYS = 12
SHOPPERS = 3
BACKLOG_MOST = 250
"""They wait when so many messages are ahead of the deliveries: the run tests invariants, not speed."""


class Shoppers:
    """Each has keys of its own, so that the order within a key is known; their transactions overlap."""

    def __init__(self, url: str, journal: Path, seed: str) -> None:
        self.committed: list[Name] = []
        self.rolled_back: list[Name] = []
        self._url, self._journal = url, journal
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(seed, shopper)) for shopper in range(SHOPPERS)]

    def __enter__(self) -> Self:
        with closing(open_till(self._url)) as till:
            till.prepare()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let each end its transaction; raise what went wrong in one."""
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), "a producer hangs"
        if self._errors:
            raise self._errors.pop()

    def orders(self) -> set[Name]:
        """The business rows that are there: what committed, by the database's own word."""
        with closing(open_till(self._url)) as till:
            return till.orders()

    def _run(self, seed: str, shopper: int) -> None:
        dice = random.Random(f"{seed}:{shopper}")
        keys = [f"k{key}" for key in range(shopper, KEYS, SHOPPERS)]
        last = dict.fromkeys(keys, 0)
        try:
            with closing(open_till(self._url)) as till:
                while not self._stop.wait(dice.uniform(0.02, 0.12)):
                    if self._backlog() > BACKLOG_MOST:
                        continue
                    names = [_next(last, dice.choice(keys)) for _ in range(dice.randint(1, 5))]
                    keep = dice.random() > 0.1
                    till.shop(names, keep=keep)
                    (self.committed if keep else self.rolled_back).extend(names)
        except BaseException as exc:
            self._errors.append(exc)

    def _backlog(self) -> int:
        return len(self.committed) - self._journal.read_bytes().count(b"\n")


def _next(last: dict[str, int], key: str) -> Name:
    last[key] += 1
    return Name(key, last[key])
