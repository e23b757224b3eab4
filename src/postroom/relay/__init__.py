"""The relay carries what was put to the outside world: in order per key, at least once, through crashes.

```
            every lease/3, by itself                       as often as there is something
        ┌──────────────────────────────┐        ┌──────────────────────────────────────────────┐
        │ renew ─▶ take or hand over   │        │ claim ─▶ publish ─▶ verdicts ─▶ settle       │
        └──────────────────────────────┘        └──────────────────────────────────────────────┘
               heartbeat.py                 claims.py   sender.py   verdict.py   settler.py
                        └─────────── owned_lanes.py: my lanes, until when ───────────┘
```

`relay.py` is the loop: it takes a batch from `claims.py`, gives it a task, and has it sent and settled there.

A relay owns lanes by lease, and sends only what it claimed in lanes it holds. It keeps a deadline per lane by its own
monotonic clock, taken before each renewing call, and starts no send that could outlast it: a relay that slept through its
lease wakes up harmless. No database transaction is open while anything is sent.

When it is killed: what was in flight is let go by whoever takes the lane over, one attempt is counted, and it travels
alone from then on. When it is stopped: it settles what it sent, leaves the rest untouched, and hands its lanes back.
"""

from postroom.relay.relay import Drained, Relay, relay_from
from postroom.relay.routes import Route, routes_from

__all__ = ["Drained", "Relay", "Route", "relay_from", "routes_from"]
