"""What is kept of an error: its code and its words, as every database can keep them."""

from __future__ import annotations

from postroom.contracts.outbox import ERROR_MAX
from postroom.text import one_line, storable

CODE_MAX = 255
"""How much of a code is kept."""


def kept_error(error: str) -> str:
    r"""An error's words as they are kept: the beginning, with escapes for what cannot be kept or shown.

    >>> kept_error("not " + chr(0))
    'not \\x00'
    """
    return storable(error[:ERROR_MAX], ERROR_MAX)


def kept_code(code: str) -> str:
    """A code as it is kept: one line, and not long. A handler of the user's own may have chosen it."""
    return one_line(code[:CODE_MAX], CODE_MAX)
