"""Named places where a test can stop the process, to kill it just there.

`POSTROOM_FAILPOINT=after-publish` parks the process the first time it comes by; `after-publish:3` the third time. In
production this is one comparison with None.
"""

from __future__ import annotations

import os
import signal
import sys

POINTS = (
    "after-take",
    "after-claim",
    "before-publish",
    "after-publish",
    "after-mark",
    "after-settle",
    "before-release",
)
"""Of a relay. Not every store has all of them."""
INBOX_POINTS = (
    "after-received",
    "after-counted",
    "after-remembered",
    "before-handled",
    "after-handled",
    "after-failed",
    "after-buried",
)
"""Of an inbox: `after-counted` is before a try of what was delivered before,
`before-handled` is before the commit, `after-handled` between it and the acknowledgement."""

_armed: str | None = None
_left = 0


def arm(spec: str | None) -> None:
    """Park at this point, or nowhere. Called once, when a relay's process starts."""
    global _armed, _left
    name, _, nth = (spec or "").partition(":")
    _armed, _left = (name, int(nth or 1)) if name in POINTS + INBOX_POINTS else (None, 0)


def reach(name: str) -> None:
    """Come by a point: parks here if it is the armed one, after saying so."""
    global _left  # noqa: PLW0603 - one process, one failpoint
    if _armed is None or name != _armed:
        return
    _left -= 1
    if _left == 0:
        os.write(sys.stdout.fileno(), f"PARKED {name}\n".encode())
        signal.pause()
