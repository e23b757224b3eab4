"""For a process that is nothing but a relay."""

from __future__ import annotations

import gc

THRESHOLDS = (100_000, 20, 100)
"""How many new objects there may be before Python looks for circles among them. Its own 700 means a look several times
per batch; messages make no circles, and are gone when their batch is settled."""


def settle_in() -> None:
    """Leave what start-up made out of every later look for circles, and look less often: it would take a fifth of the
    relay's time. An application that has a relay inside decides that for itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
