"""How long the long tests last, and the seed from which they take everything that is random.

`make proof` sets both variables. Without them it is a sample: short, and with a new seed each time. A test prints its seed."""

from __future__ import annotations

import os
import secrets

SECONDS = "POSTROOM_PROOF_SECONDS"
SEED_VARIABLE = "POSTROOM_PROOF_SEED"

SEED = os.environ.get(SEED_VARIABLE) or secrets.token_hex(4)
IS_SAMPLE = SECONDS not in os.environ
STORM_SECONDS = float(os.environ.get(SECONDS, "8"))
"""How long relays are killed, put to sleep and told to end."""
TRIP_MESSAGES, TRIP_KILLS = (600, 2) if IS_SAMPLE else (10_000, 8)
"""How many messages go over each broker, and how often a process on their way is killed."""
OUTAGE_MESSAGES, OUTAGES = (800, 1) if IS_SAMPLE else (3_000, 2)
"""How many messages are on their way while the broker itself is killed, and how often it is."""
WALKS = 16 if IS_SAMPLE else 150
"""How many random walks there are, in virtual time."""
