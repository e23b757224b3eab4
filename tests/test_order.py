"""The slow tests stand at the beginning of each worker's share, and none is lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import order


@dataclass(eq=False)
class Item:
    """What is asked of a test here: where it is."""

    path: Path


def items(slow: int, quick: int) -> list[Any]:
    """So many slow tests, behind so many quick ones."""
    return [*(Item(Path("quick.py")) for _ in range(quick)), *(Item(next(iter(order.PLACES))) for _ in range(slow))]


@pytest.mark.parametrize(
    ("slow", "quick", "workers"), [(0, 0, 4), (5, 20, 4), (1, 2, 4), (7, 0, 4), (3, 100, 1), (9, 3, 2)]
)
def test_every_test_is_dealt_once(slow: int, quick: int, workers: int) -> None:
    given = items(slow, quick)
    dealt = order.dealt(given, workers)
    assert sorted(map(id, dealt)) == sorted(map(id, given))


def test_each_share_begins_with_the_slow_ones() -> None:
    dealt = order.dealt(items(6, 17), 4)
    shares = [dealt[:5], dealt[5:11], dealt[11:17], dealt[17:]]  # 23 tests, as worksteal cuts them
    assert [[item.path in order.PLACES for item in share].count(True) for share in shares] == [2, 2, 1, 1]
    assert all(item.path in order.PLACES for share in shares for item in share[:1])


def test_the_list_names_what_exists() -> None:
    assert [path for path in order.PLACES if not path.exists()] == []
