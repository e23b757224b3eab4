"""The configurations in which no invariant may break."""

from __future__ import annotations

from typing import Any

A2 = dict(keys="aa", tx=(0, 1))
BASE: dict[str, dict[str, Any]] = {
    "B1 one key, 2 msgs, all faults, late packets": dict(
        A2, crash=1, pause=1, lost=1, delay=True, fail=(0, 1), reject=(0,)
    ),
    "B2 two keys, 3 msgs, crash+pause": dict(keys="aab", fail=(0,), crash=1, pause=1, lost=0),
    "B3 one key, 3 msgs, two batches in flight": dict(
        keys="aaa", NB=2, B=2, fail=(0,), rollback=(), crash=1, pause=1, lost=0
    ),
    "B4 split deadline check (zombie may send late), 2 pauses": dict(
        A2, split_check=True, crash=0, pause=2, lost=1, fail=(0,), rollback=()
    ),
    "B5 position hint, late commits, 2 keys": dict(
        keys="aba", hint=True, fail=(0,), rollback=(1,), crash=0, pause=1, lost=0
    ),
    "B6 park, reject, requeue, discard": dict(
        keys="aab",
        reject=(0,),
        fail=(1,),
        requeue=1,
        discard=True,
        rollback=(),
        crash=0,
        pause=1,
        lost=0,
        committed=(2,),
    ),
    "B7 skip, reject, requeue": dict(
        A2, policy="skip", NB=2, reject=(0,), fail=(0, 1), requeue=1, rollback=(), crash=1, pause=1, lost=0
    ),
    "B8 clean stop + hand-over + crash + pause": dict(
        A2, stop=1, handover=True, fail=(0,), rollback=(), crash=1, pause=1, lost=0
    ),
    "B9 database answers lost + crash + pause": dict(
        A2, NB=2, dberr=1, fail=(0, 1), rollback=(), crash=1, pause=1, lost=0
    ),
    "B10 two lanes": dict(
        keys="ab", lane_of={"a": 0, "b": 1}, nl=2, tx=(0, 1), fail=(0,), rollback=(), crash=1, pause=1, lost=0
    ),
    "B11 poison + innocent, two lanes, cap 3": dict(
        keys="ab",
        lane_of={"a": 0, "b": 1},
        nl=2,
        tx=(0, 1),
        fail=(),
        rollback=(),
        poison=(0,),
        crash=1,
        pause=0,
        lost=0,
        NB=2,
        cap=3,
        handinv=True,
    ),
    "B12 two messages in one transaction": dict(
        keys="aaa", tx=(0, 0, 1), fail=(0,), rollback=(0,), crash=1, pause=1, lost=0, B=3
    ),
    "B13 row born without a lane": dict(A2, laneless=(0,), fail=(0, 1), rollback=(), crash=1, pause=1, lost=0),
    "B14 stale claim rows ignored instead of locked": dict(
        A2, r_claim_lock=False, r_stale_ignored=True, r_gc=True, NB=2, fail=(0,), rollback=(), crash=1, pause=1, lost=0
    ),
    "B15 unavailable broker, cap 3": dict(A2, cap=3, unavail=(0, 1), fail=(0,), rollback=(), crash=1, pause=1, lost=0),
    "B16 park, zombies, late packets, requeue, discard": dict(
        A2,
        split_check=True,
        delay=True,
        reject=(0,),
        requeue=1,
        discard=True,
        fail=(0, 1),
        rollback=(),
        crash=1,
        pause=1,
        lost=1,
    ),
    "B17 two lanes, 3 msgs, hand-over": dict(
        keys="aba",
        lane_of={"a": 0, "b": 1},
        nl=2,
        fail=(0,),
        rollback=(),
        crash=0,
        pause=1,
        lost=0,
        handover=True,
        committed=(0, 1),
    ),
    "B18 nearly everything at once, 2 msgs, 2 batches": dict(
        A2,
        NB=2,
        split_check=True,
        reject=(0,),
        fail=(0, 1),
        requeue=1,
        rollback=(),
        crash=0,
        pause=1,
        lost=0,
        dberr=1,
        stop=1,
        handover=True,
    ),
    "B18b the same, crash instead of pause": dict(
        A2,
        NB=2,
        reject=(0,),
        fail=(0, 1),
        requeue=1,
        rollback=(),
        crash=1,
        pause=0,
        lost=1,
        dberr=1,
        stop=1,
        handover=True,
    ),
    "B19 position hint, crash + pause + lost, 3 msgs": dict(
        keys="aba", hint=True, NB=2, fail=(0,), rollback=(), crash=1, pause=0, lost=1
    ),
    "B20 one key, 3 msgs, 2 crashes + 1 pause, cap 3": dict(
        keys="aaa", B=3, cap=3, fail=(0,), rollback=(), crash=2, pause=1, lost=0, committed=(0,)
    ),
    "B21 a claim whose commit is still under way when its client gives up": dict(
        A2, NB=2, dberr=2, commit2=True, fail=(0,), rollback=(), crash=1, pause=1, lost=0
    ),
    "B22 the same, two lanes and a clean stop": dict(
        keys="ab",
        lane_of={"a": 0, "b": 1},
        nl=2,
        tx=(0, 1),
        dberr=1,
        commit2=True,
        stop=1,
        fail=(0,),
        rollback=(),
        crash=0,
        pause=1,
        lost=0,
    ),
    "B23 poison + innocents, cap 1, two lanes": dict(
        tx=(0, 1, 2),
        fail=(),
        rollback=(),
        pause=0,
        lost=0,
        handinv=True,
        slackI7=False,
        NB=2,
        keys="aab",
        lane_of={"a": 0, "b": 1},
        nl=2,
        poison=(0,),
        crash=0,
        cap=1,
    ),
    "B24 poison + innocents, cap 2, halves": dict(
        tx=(0, 1, 2),
        fail=(),
        rollback=(),
        pause=0,
        lost=0,
        handinv=True,
        slackI7=False,
        NB=2,
        keys="abc",
        lane_of={"a": 0, "b": 0, "c": 0},
        B=3,
        half=2,
        poison=(1,),
        crash=0,
        cap=2,
    ),
    "B25 poison + innocents, cap 2, two lanes, halves": dict(
        tx=(0, 1, 2),
        fail=(),
        rollback=(),
        pause=0,
        lost=0,
        handinv=True,
        slackI7=False,
        NB=2,
        keys="abc",
        lane_of={"a": 0, "b": 0, "c": 1},
        nl=2,
        B=2,
        half=2,
        poison=(0,),
        crash=0,
        cap=2,
    ),
    "B26 two poison messages, cap 1": dict(
        tx=(0, 1, 2),
        fail=(),
        rollback=(),
        pause=0,
        lost=0,
        handinv=True,
        slackI7=False,
        NB=2,
        keys="abc",
        lane_of={"a": 0, "b": 0, "c": 1},
        nl=2,
        B=2,
        poison=(0, 2),
        crash=0,
        cap=1,
    ),
}
