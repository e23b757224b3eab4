"""What servers are told that our connections are called."""

from __future__ import annotations

OURS = "postroom"
"""Where no relay has a name of its own."""
NAME_MAX = 63
"""How much of a name every server takes."""


def shown_name(name: str | None) -> str:
    """What a server is told that we are called.

    >>> shown_name(None), shown_name("billing-1")
    ('postroom', 'postroom:billing-1')
    """
    said = OURS if name is None else f"{OURS}:{name}"
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in said)[:NAME_MAX]
