"""Stores that break one promise each, and the case of the contract that must catch it.

A promise without a saboteur is a promise nobody checks. Each is the memory store with one thing wrong; `caught_by` names
the case. `tests/conformance/test_the_contracts_themselves.py` runs them all. Inboxes, publishers and consumers have theirs in
the modules of that name.
"""

from __future__ import annotations

from postroom.testing.saboteurs import lanes, ops, outbox

__all__ = ["all_saboteurs", "lanes", "ops", "outbox"]


def all_saboteurs() -> list[type[outbox.Saboteur]]:
    """Every one of them."""
    return outbox.Saboteur.__subclasses__()
