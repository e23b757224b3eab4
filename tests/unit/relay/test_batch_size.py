"""How many messages one claim asks for, as the trips before it went. Time is an argument."""

from __future__ import annotations

import pytest

from postroom.relay.batch_size import MOST_BYTES, REMEMBERED, BatchSize, Trip

QUICK, SLOW = 0.1, 0.6
"""Of a tenth of 2.5 s: below it, and above twice it."""


def sizes(first: int = 32, most: int = 4_096) -> BatchSize:
    return BatchSize(first, most, send_timeout=2.5)


def trip(asked: int, found: int | None = None, *, seconds: float = QUICK, size: int = 300, published: int = -1) -> Trip:
    """A trip that came back full and was published, if nothing else is said; *size*: of each body."""
    found = asked if found is None else found
    return Trip(asked, found, found if published < 0 else published, found * size, seconds)


# A trip, or several one after the other, and what is asked for then.
TABLE = {
    "nothing yet": ([], 32),
    "full and quick": ([trip(32)], 64),
    "full and quick, and again": ([trip(32), trip(64)], 128),
    "up to the top": ([trip(2**power) for power in range(5, 12)], 4_096),
    "not beyond the top": ([trip(2**power) for power in range(5, 13)], 4_096),
    "not full": ([trip(32, 31)], 32),
    "exactly a tenth of the time-out is not less": ([trip(32, seconds=0.25)], 32),
    "exactly twice that is not above": ([trip(32), trip(64, seconds=0.5)], 64),
    "slow": ([trip(32), trip(64), trip(128, seconds=SLOW)], 64),
    "slow and not full": ([trip(32), trip(64), trip(128, 5, seconds=SLOW)], 64),
    "never below what it began with": ([trip(32, seconds=SLOW)], 32),
    "several asked for at the same size double once": ([trip(32), trip(32), trip(32)], 64),
    "several slow ones of the same size halve once": ([trip(32), trip(64), *[trip(128, seconds=SLOW)] * 3], 64),
    "an old one, asked for when more was asked": ([trip(32), trip(64, seconds=SLOW), trip(64)], 32),
    "most of it was not published": ([trip(32, published=15)], 32),
    "most of it was published": ([trip(32, published=16)], 64),
    "nothing was found": ([trip(32, 0)], 32),
    "bodies of a megabyte": ([trip(32, size=2**20)], 8),
    "bodies of a megabyte, that are quickly sent": ([trip(32, size=2**20), trip(8, size=2**20)], 8),
    "bodies larger than all that fits": ([trip(32, size=2 * MOST_BYTES)], 1),
    "bodies of which half fit": ([trip(2**power, size=4_096) for power in range(5, 13)], 2_048),
    "small ones after large ones": ([trip(32, size=2**20), *[trip(8)] * REMEMBERED], 64),
    "not at once: there may be more large ones": ([trip(32, size=2**20), *[trip(8)] * (REMEMBERED - 1)], 8),
}


@pytest.mark.parametrize(("trips", "asked"), TABLE.values(), ids=TABLE.keys())
def test_the_next_claim_asks_for(trips: list[Trip], asked: int) -> None:
    batch = sizes()
    for each in trips:
        batch.learn(each)
    assert batch.size == asked


def test_a_size_given_by_hand_is_kept_whatever_happens() -> None:
    batch = sizes(first=500, most=500)
    for each in (trip(500), trip(500, seconds=SLOW), trip(500, size=MOST_BYTES)):
        batch.learn(each)
    assert batch.size == 500
    assert batch.is_fixed


def test_a_top_given_by_hand_is_the_top() -> None:
    batch = sizes(most=100)
    assert not batch.is_fixed
    for asked in (32, 64, 100):
        batch.learn(trip(asked))
    assert batch.size == 100
