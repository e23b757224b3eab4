"""What the tables say in the end, and whether it is what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.cli.demo.shop import Order
from postroom.cli.output import write


@dataclass(frozen=True, slots=True)
class Proof:
    """The three tables: what was ordered, what the outbox says, what arrived."""

    tried: int
    """How many orders were begun, those rolled back among them."""
    orders: Sequence[Order]
    """Committed, by the shop's own table."""
    published: int
    """By the outbox."""
    delivered: Sequence[Order]
    """By the warehouse."""

    @property
    def lost(self) -> int:
        """Orders that never arrived."""
        return (Counter(self.orders) - Counter(self.delivered)).total()

    @property
    def ghosts(self) -> int:
        """Deliveries of what was never committed, or of more than was."""
        return (Counter(self.delivered) - Counter(self.orders)).total()

    @property
    def in_order(self) -> bool:
        """Has each customer's line arrived in the order it was written? What is lost or a ghost is told apart."""
        known, arrived = set(self.delivered), set(self.orders)
        return all(
            [each for each in self.orders if each.customer == name and each in known]
            == [each for each in self.delivered if each.customer == name and each in arrived]
            for name in {order.customer for order in self.orders}
        )


def compare(proof: Proof) -> list[str]:
    """What is wrong; nothing, unless Postroom broke its word."""
    wrong = {
        "messages were lost": proof.lost,
        "ghosts were delivered": proof.ghosts,
        "the order was broken": not proof.in_order,
        "the outbox and the warehouse differ": proof.published != len(proof.delivered),
    }
    return [problem for problem, found in wrong.items() if found]


def show(proof: Proof) -> None:
    """Write it down."""
    write("")
    write("What the tables say in the end")
    for name, value in (
        ("orders committed", len(proof.orders)),
        ("orders rolled back", proof.tried - len(proof.orders)),
        ("messages published", proof.published),
        ("messages delivered", len(proof.delivered)),
        ("lost", proof.lost),
        ("ghosts", proof.ghosts),
        ("order kept per customer", "yes" if proof.in_order else "NO"),
    ):
        write(f"  {name:<26} {value!s:>4}")
