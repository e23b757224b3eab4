"""Breadth first through every state of the model, looking for one that breaks an invariant."""

from __future__ import annotations

import time

from tests.model.lane import M, V


def show(trace):
    return "\n".join(f"   {i + 1:2d}. {t}" for i, t in enumerate(trace))


def swap(s):
    msgs, hb, lanes, claims, relays, net, bud = s
    mp = (0, 2, 1, 3, 4, 5, 6, 7, 8, 9)
    return (
        msgs,
        hb,
        tuple((mp[o], e, v) for o, e, v in lanes),
        tuple(sorted((mp[o], *c) for o, *c in claims)),
        (relays[1], relays[0]),
        net,
        bud,
    )


def check(name, limit=1500000, budget=150, told=True, check_i0=True, sym=True, **kw):
    skipcheck = kw.pop("skipcheck", False)
    handinv = kw.pop("handinv", False)
    m = M(**kw)
    m.skipcheck = skipcheck
    m.handinv = handinv
    if not (m.r_deadline_early and m.r_epoch and m.r_take_expired):
        check_i0 = False
    t0 = time.time()
    s0 = m.init()
    idx = {s0: 0}
    states = [s0]
    par = [(-1, "")]
    rev_src, rev_dst = [], []
    trans = 0

    def trace(i, last=None):
        out = [last] if last else []
        while i > 0:
            out.append(par[i][1])
            i = par[i][0]
        return out[::-1]

    i = 0
    res = None
    while i < len(states):
        s = states[i]
        try:
            if check_i0:
                m.i0(s)
            if handinv or m.deaddel:
                m.i11(s)
            lab = None
            for lab, fault, ns in m.succ(s):
                trans += 1
                ns = m.norm(ns)
                if m.policy == "skip" and not skipcheck and ns[0] != s[0]:
                    dead = {k for k in range(m.n) if ns[0][k][1] == "D"}
                    if dead and any(p[0] in dead for p in ns[1]):
                        ns = (ns[0], frozenset(p for p in ns[1] if p[0] not in dead)) + ns[2:]
                # relay symmetry: canonical of the two
                if sym and ns[4][0] > ns[4][1]:
                    ns = swap(ns)
                j = idx.get(ns)
                if j is None:
                    j = len(states)
                    idx[ns] = j
                    states.append(ns)
                    par.append((i, lab))
                if not fault and m.live:
                    rev_src.append(i)
                    rev_dst.append(j)
        except V as v:
            res = (v.inv, v.why, trace(i, f"--> {v.inv}: {v.why}"), i)
            break
        i += 1
        if len(states) > limit or time.time() - t0 > budget:
            res = ("LIMIT", f"stopped at {len(states)} states, {i} expanded", [], i)
            break
    N = len(states)
    if res is None and m.live:
        radj = [[] for _ in range(N)]
        for a, b in zip(rev_src, rev_dst):
            radj[b].append(a)
        ok = bytearray(N)
        st = [k for k in range(N) if m.drained(states[k])]
        for k in st:
            ok[k] = 1
        while st:
            k = st.pop()
            for p in radj[k]:
                if not ok[p]:
                    ok[p] = 1
                    st.append(p)
        bad = ok.find(0)
        if bad >= 0:
            res = (
                "I9",
                "from here the backlog can never drain without a new fault",
                trace(bad) + [f"--> I9: stuck; msgs={states[bad][0]} lanes={states[bad][2]} claims={states[bad][3]}"],
                bad,
            )
    dt = time.time() - t0
    out = dict(
        name=name,
        states=N,
        trans=trans,
        secs=round(dt, 1),
        inv=res[0] if res else None,
        why=res[1] if res else "",
        trace=res[2] if res else [],
    )
    if told:
        print(
            f"{'OK  ' if not res else res[0]:5s} {name:58s} {N:8d} states {trans:9d} steps {dt:6.1f}s  {out['why']}",
            flush=True,
        )
    return out
