"""The demo tells the truth: its last table is computed, and a planted loss makes it fail."""

from __future__ import annotations

import subprocess
import sys

from postroom.cli.demo import _compare
from postroom.message import Message

ORDERS = [("ada", 1), ("ada", 2), ("grace", 3)]


def delivered(*orders: tuple[str, int]) -> list[Message]:
    return [Message("order.placed", key=customer, data={"amount": amount}) for customer, amount in orders]


def test_the_demo_ends_by_itself_and_all_is_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "postroom", "demo"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for line in ("orders committed 6", "messages delivered 6", "lost 0", "ghosts 0", "order kept per customer yes"):
        assert line in said
    for fault in ("ROLLBACK", "TIMEOUT", "UNKNOWN_CUSTOMER", "waits for the dead one"):
        assert fault in said


def test_what_is_right_is_right() -> None:
    assert _compare(ORDERS, delivered(("grace", 3), ("ada", 1), ("ada", 2)), []) == []


def test_a_planted_loss_ghost_or_inversion_is_told() -> None:
    assert "messages were lost" in _compare(ORDERS, delivered(*ORDERS[:2]), [])
    assert "ghosts were delivered" in _compare(ORDERS, delivered(*ORDERS, ("eve", 9)), [])
    assert "the order was broken" in _compare(ORDERS, delivered(("ada", 2), ("ada", 1), ("grace", 3)), [])
