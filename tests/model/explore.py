"""Where order ends: what may still happen, and what may not, at the edges of the promise. With the result of each."""

from __future__ import annotations

from typing import Any

A2 = dict(keys="aa", tx=(0, 1), rollback=(), sym=False)
EDGES: dict[str, dict[str, Any]] = {
    "E1 skip, zombie late send": dict(
        A2, policy="skip", split_check=True, reject=(0,), fail=(), crash=0, pause=1, lost=0, skipcheck=True
    ),
    "E2 skip, late packet, cap 1": dict(
        A2, policy="skip", delay=True, cap=1, fail=(), crash=0, pause=0, lost=1, skipcheck=True
    ),
    "E3 skip, requeue": dict(
        A2, policy="skip", requeue=1, reject=(0,), fail=(), crash=0, pause=0, lost=0, skipcheck=True
    ),
    "E4 skip, none of the three, crash+pause+lost": dict(
        A2, policy="skip", reject=(0,), fail=(0, 1), crash=1, pause=1, lost=1, skipcheck=True
    ),
    "E5 park, zombies and late packets, requeue, no discard": dict(
        A2, split_check=True, delay=True, reject=(0,), requeue=1, fail=(0,), crash=0, pause=1, lost=1, skipcheck=True
    ),
    "E6 park, discard, late packet": dict(
        A2, delay=True, requeue=1, discard=True, cap=1, fail=(), crash=0, pause=0, lost=1, skipcheck=True
    ),
    "E7 E1 with a fence by epoch at the broker/inbox": dict(
        A2,
        policy="skip",
        split_check=True,
        reject=(0,),
        fail=(0,),
        crash=1,
        pause=2,
        lost=0,
        skipcheck=True,
        fence=True,
    ),
    "E8 dead yet delivered by a lost answer": dict(A2, cap=1, fail=(), crash=0, pause=0, lost=1, deaddel=True),
    "E9 dead yet delivered by crash/takeover": dict(A2, cap=2, fail=(), crash=2, pause=0, lost=0, deaddel=True),
    "E10 dead yet delivered, no unknowns": dict(
        A2, cap=2, fail=(0, 1), reject=(0,), crash=0, pause=0, lost=0, deaddel=True
    ),
    "X1 no deadline at all, park, I12 not checked": dict(
        A2, fail=(0,), crash=1, pause=1, lost=0, split_check=True, r_deadline=False
    ),
    "X3 lane guard off, claim row is the only settle fence, 2 batches, lost db answers": dict(
        A2, fail=(0,), crash=1, pause=1, lost=0, NB=2, dberr=1, r_settle_guard=False
    ),
    "X4 E2 with the epoch fence": dict(
        A2, policy="skip", delay=True, cap=1, fail=(), crash=0, pause=0, lost=1, skipcheck=True, fence=True
    ),
}
