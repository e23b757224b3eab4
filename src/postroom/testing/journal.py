"""The judge of a run: what was put, what was delivered, and what the database says at the end, held against each other.

A harness puts messages that carry their key and a number, lets relays deliver them to something that writes a line per
delivery, breaks what it likes meanwhile, and asks here whether the promises held:

- nothing is lost: what committed was delivered, or stands there dead, or waits behind a dead one of its key;
- there are no ghosts: what rolled back was never delivered;
- the first deliveries of a key are in the order in which its messages were put;
- a message comes again only for a fault that it was in flight at: at most once for each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from postroom.contracts.ops import OPEN, Status


class Name(NamedTuple):
    """Which message: the key, and the number that the harness gave it within the key."""

    key: str
    number: int

    def __str__(self) -> str:
        return f"{self.key}/{self.number}"


class Delivery(NamedTuple):
    """A line of the journal: this relay delivered this message."""

    name: Name
    relay: str = "a relay"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Everything that is known of a run."""

    put: Sequence[Name]
    """What committed, in the order in which it was put within each key."""
    journal: Sequence[Delivery]
    """What was delivered, in that order."""
    found: Mapping[Name, Status]
    """What the database says at the end."""
    faults: Mapping[Name, int] = field(default_factory=dict)
    """In how many faults each message was in flight: kills, lost leases, sends whose effect was unknown."""
    park: bool = True
    """Does a dead message hold its key? Else it keeps no place in the order."""


def check(run: Run) -> None:
    """Raise AssertionError with a sentence for each broken promise, which names the message."""
    sentences = [*ghosts(run), *losses(run), *inversions(run), *repeats(run)]
    shown = sentences[:20] + [f"… and {len(sentences) - 20} more."] * (len(sentences) > 20)
    assert not sentences, "\n".join(shown)


def ghosts(run: Run) -> Iterator[str]:
    """Delivered, or there, although no transaction that wrote it committed."""
    put = set(run.put)
    for name, relay in {delivery.name: delivery.relay for delivery in run.journal}.items():
        if name not in put:
            yield f"{name} is a ghost: {relay} delivered it, and nothing that committed wrote it."
    for name in run.found:
        if name not in put:
            yield f"{name} is a ghost: it is in the database, and nothing that committed wrote it."


def losses(run: Run) -> Iterator[str]:
    """Committed, and neither delivered nor waiting for a person in a way that a person can see."""
    delivered = {delivery.name for delivery in run.journal}
    dead: set[str] = set()
    for name in run.put:
        status = run.found.get(name)
        if status == "dead":
            dead.add(name.key)
        if status is None:
            yield f"{name} is lost: it committed, and the database does not know it."
        elif status == "published" and name not in delivered:
            yield f"{name} is lost: it is marked as published, but was not delivered."
        elif status in OPEN and not (run.park and name.key in dead):
            yield f"{name} is left behind: it is {status} at the end, and no dead message of its key explains that."


def inversions(run: Run) -> Iterator[str]:
    """Delivered for the first time although an earlier one of its key had not been."""
    line: defaultdict[str, list[Name]] = defaultdict(list)
    for name in run.put:
        line[name.key].append(name)
    first = {name: position for position, name in reversed([*enumerate(each.name for each in run.journal)])}
    for names in line.values():
        latest: Name | None = None
        for place, name in enumerate(names):
            if name not in first:
                passed = next((later for later in names[place:] if later in first), None)
                if passed and _keeps_its_place(run, name):
                    yield f"{passed} came before {name}, which was put earlier and never came."
            elif latest is not None and first[name] < first[latest]:
                relay = run.journal[first[name]].relay
                yield f"{name} came before {latest}, which was put earlier: {relay} delivered it, line {first[name] + 1}."
            else:
                latest = name


def repeats(run: Run) -> Iterator[str]:
    """Delivered more often than its faults explain."""
    times = Counter(delivery.name for delivery in run.journal)
    for name, number in times.items():
        faults = run.faults.get(name, 0)
        if number > 1 + faults:
            relays = ", ".join(delivery.relay for delivery in run.journal if delivery.name == name)
            yield f"{name} came {number} times ({relays}), and was in flight at {faults} faults."


def _keeps_its_place(run: Run, name: Name) -> bool:
    """Does its key wait for it? Not when it needs no delivery any more, nor when the dead are skipped."""
    status = run.found.get(name)
    return status not in ("expired", "discarded") and (run.park or status != "dead")
