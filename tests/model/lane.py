"""The lane protocol as a model: every state, and the steps that lead out of it. Plain Python.

state = (msgs, hb, lanes, claims, relays, net, bud)
 msgs   : tuple of (tx, st, att, dv, slack, lost)   lost = how often it was in flight when its relay died, at most 2
          tx 0 unwritten 1 written 2 committed 3 rolled back ; st O W P D X N
          (O open+due, W open, in backoff, P published, D dead, X discarded dead, N open without lane)
          dv delivered at least once ; slack = 1 + faults that hit m - deliveries of m   (I7: slack >= 0)
 hb     : frozenset of (i,j): same key, i committed before j was written, or same transaction
 lanes  : tuple of (owner, epoch, live)   owner 0 none, 1/2 relay slot (current incarnation), 9 a dead process
 claims : sorted tuple of (owner, lep, msgs, alone)   lep = ((lane, epoch),...)   alone = nothing else was in flight
 relays : tuple of (alive, stop, mine, hint, batches, doubt, limbo)
          doubt = lanes of which an answer was lost ; limbo = claims whose client gave up and whose commit is under way
          mine = per lane (epoch or 0, local deadline ok) ; batch = (lep, msgs, outs, chk, sph)
 net    : sorted tuple of messages still travelling to the broker (sender has given up waiting)
 bud    : remaining faults (crash, pause, lost, requeue, stop, dberr)
Pausing (SIGSTOP) = a relay simply takes no step; every interleaving is explored.
"""

from __future__ import annotations

from tests.model.rules import RULES


class V(Exception):
    def __init__(self, inv, why):
        self.inv, self.why = inv, why


def rep(t, i, v):
    return t[:i] + (v,) + t[i + 1 :]


class M:
    def __init__(self, **kw):
        c = dict(RULES)
        c.update(kw)
        self.c = c
        for k, v in c.items():
            setattr(self, k, v)
        self.n = len(self.keys)
        self.earlier = [[i for i in range(j) if self.keys[i] == self.keys[j]] for j in range(self.n)]
        self.lane = [self.lane_of[k] for k in self.keys]

    def init(self):
        msgs = tuple(
            (2 if i in self.committed else 0, "N" if i in self.laneless else "O", 0, 0, 1, 0) for i in range(self.n)
        )
        hb = frozenset((i, j) for j in self.committed for i in self.earlier[j] if i in self.committed)
        lanes = tuple((0, 0, 0) for _ in range(self.nl))
        r = (1, 0, tuple((0, 0) for _ in range(self.nl)), -1, (), (), ())
        return (
            msgs,
            hb,
            lanes,
            (),
            (r, r),
            (),
            (self.crash, self.pause, self.lost, self.requeue, self.stop, self.dberr),
        )

    # ---- helpers
    def norm(self, s):
        """rank-compress epochs per lane (only =,<,+1 are used)"""
        msgs, hb, lanes, claims, relays, net, bud = s
        maps = []
        dirty = False
        for l in range(self.nl):
            e = {lanes[l][1]}
            for c in claims:
                for a, b in c[1]:
                    if a == l:
                        e.add(b)
            for r in relays:
                e.add(r[2][l][0])
                for b in r[4] + r[6]:
                    for a, x in b[0]:
                        if a == l:
                            e.add(x)
            e.discard(0)
            srt = sorted(e)
            mp = {x: i + 1 for i, x in enumerate(srt)}
            mp[0] = 0
            if any(k != v for k, v in mp.items()):
                dirty = True
            maps.append(mp)
        if not dirty:
            return s
        f = lambda lep: tuple((a, maps[a][b]) for a, b in lep)
        lanes = tuple((o, maps[l][e], v) for l, (o, e, v) in enumerate(lanes))
        claims = tuple(sorted((o, f(lep), ms, x) for o, lep, ms, x in claims))
        relays = tuple(
            (
                al,
                st,
                tuple((maps[l][e], d) for l, (e, d) in enumerate(mine)),
                h,
                tuple((f(lep), ms, outs, chk, sph) for lep, ms, outs, chk, sph in bs),
                dt,
                tuple((f(lep), ms, x) for lep, ms, x in lm),
            )
            for al, st, mine, h, bs, dt, lm in relays
        )
        return (msgs, hb, lanes, claims, relays, net, bud)

    def deliver(self, msgs, hb, m, stale):
        tx, st, att, dv, slack, lo = msgs[m]
        if tx != 2:
            raise V("I2", f"m{m} delivered, its transaction is {['unwritten', 'open', '', 'rolled back'][tx]}")
        if not dv:
            for e in self.earlier[m]:
                if (e, m) in hb and msgs[e][0] == 2 and not msgs[e][3]:
                    if msgs[e][1] == "X":
                        continue
                    if msgs[e][1] == "D" and self.policy == "skip":
                        continue
                    raise V("I3", f"m{m} delivered first, m{e} (same key, earlier) never was: {msgs[e][1]}")
            if self.skipcheck:
                for j in range(m + 1, self.n):
                    if self.keys[j] == self.keys[m] and (m, j) in hb and msgs[j][3]:
                        raise V("I3s", f"m{m} delivered for the first time after m{j}; m{m} is {st}")
        if self.slackI7:
            slack -= 1
        if slack < 0 and self.slackI7:
            raise V("I7", f"m{m} delivered again without a fault")
        return rep(msgs, m, (tx, st, att, 1, max(slack, -1), lo))

    skipcheck = False

    def hit(self, msgs, ms):
        if not self.slackI7:
            return msgs
        for m in ms:
            t = msgs[m]
            msgs = rep(msgs, m, t[:4] + (t[4] + 1, t[5]))
        return msgs

    def attempt(self, msgs, m, bury=True, dead=False):
        tx, st, att, dv, sl, lo = msgs[m]
        if st not in "OW":
            return msgs
        att += 1
        if dead or (att >= self.cap and bury):
            st = "D"
        else:
            st = "W"
        if att > self.cap:
            raise V("I8", f"m{m} has {att} attempts, cap {self.cap}")
        return rep(msgs, m, (tx, st, att, dv, sl, 0 if st == "D" else lo))

    def lost_with_its_relay(self, msgs, m, alone):
        """R6, R8': an attempt each; the last one only of what was alone"""
        tx, st, att, dv, sl, lo = msgs[m]
        if st not in "OW":
            return msgs
        if self.r_suspect:
            msgs = rep(msgs, m, (tx, st, att, dv, sl, min(lo + 1, 2)))
        if self.r_company and not alone and att + 1 >= self.cap:
            return rep(msgs, m, (tx, "W") + msgs[m][2:])
        return self.attempt(msgs, m, bury=self.r_take_bury)

    def doubted(self, doubt, lanes):
        return tuple(sorted({*doubt, *lanes}))

    def owns(self, lanes, me, lep):
        return all(lanes[l][0] == me and (lanes[l][1] == e or not self.r_epoch) for l, e in lep)

    def really(self, lanes, me, lep):
        return all(lanes[l][0] == me and lanes[l][1] == e for l, e in lep)

    def candidates(self, s, ri, l, start, held=None):
        """messages of lanes in l (tuple) that relay ri may claim, seq order, at most B"""
        msgs, hb, lanes, claims, relays, net, bud = s
        infl = set()
        for o, lep, ms, _ in claims:
            if self.r_stale_ignored and not all(lanes[a][1] == b for a, b in lep):
                continue
            infl.update(ms)
        out = []
        seen = 0
        for m in range(self.n):
            tx, st, att, dv, sl, lo = msgs[m]
            if self.lane[m] not in l or st != "O":
                continue
            if tx != 2 and (self.r_vis or tx != 1):
                continue
            if m <= start:
                continue
            seen += 1
            if not self.r_filter_first and seen > self.B:
                break
            if self.r_inflight_msg and m in infl:
                continue
            ok = True
            for e in range(self.n):
                if e == m or self.keys[e] != self.keys[m]:
                    continue
                te = msgs[e]
                if self.r_inflight_key and e in infl:
                    ok = False
                    break
                if te[0] != 2:
                    continue
                if e < m:
                    if not self.r_hint_guard and e <= start:
                        continue
                    if te[1] == "N":
                        if self.r_laneless_guard:
                            ok = False
                            break
                        continue
                    if te[1] in "OW" and e not in out:
                        if e in infl:  # only when r_inflight_key is off
                            continue
                        if self.r_keywait:
                            ok = False
                            break
                    if te[1] == "D" and self.policy == "park" and self.r_park:
                        ok = False
                        break
            if ok:
                # R8': who was lost goes with its like only, and alone from the second time on
                if out and (lo > 0) != (msgs[out[0]][5] > 0):
                    break
                if out and lo > 1:
                    break
                out.append(m)
                if lo > 1 or (lo and len(out) >= self.half):
                    break
                if len(out) == self.B:
                    break
        return out

    def buries(self, msgs, ms):
        """would the loss of this batch bury it, if it was alone?"""
        return len(ms) == 1 and msgs[ms[0]][5] > 1 and msgs[ms[0]][2] + 1 >= self.cap

    def may_travel(self, msgs, ms, batches, claims, me):
        """R8': one batch of suspects at a time; the try whose loss buries only with nothing beside it"""
        if not self.r_suspect or not batches:
            return True
        if self.r_exclusive and (self.buries(msgs, ms) or any(c[3] for c in claims if c[0] == me)):
            return False
        return not (self.r_one_suspect and msgs[ms[0]][5] and any(msgs[b[1][0]][5] for b in batches))

    def apply(self, msgs, ms, outs):
        for m, o in zip(ms, outs):
            tx, st, att, dv, sl, lo = msgs[m]
            if st not in "OW" and self.r_open_guard:
                continue
            if o == "S":
                if not dv:
                    raise V("I4", f"m{m} marked published, never delivered")
                if st in "DX":
                    raise V("I5", f"m{m} was {st}, became published")
                msgs = rep(msgs, m, (tx, "P", att, dv, sl, 0))
            elif o == "F":
                if st in "PDX":
                    raise V("I5", f"m{m} was {st}, became failed")
                msgs = self.attempt(msgs, m)
            elif o == "R":
                if st in "PX":
                    raise V("I5", f"m{m} was {st}, became dead")
                msgs = self.attempt(msgs, m, dead=True)
            elif o == "V":
                msgs = self.attempt(msgs, m) if not self.r_unavail_free else rep(msgs, m, (tx, "W", att, dv, sl, lo))
        return msgs

    # ---- transitions: yields (label, fault?, state)
    def succ(self, s):
        msgs, hb, lanes, claims, relays, net, bud = s
        bc, bp, bl, bq, bs, bd = bud
        n = self.n
        # producers
        for i in range(n):
            tx = msgs[i][0]
            if tx == 0 and (i == 0 or msgs[i - 1][0] != 0):
                nh = hb | {
                    (e, i)
                    for e in self.earlier[i]
                    if (msgs[e][0] == 2 and not (self.policy == "skip" and msgs[e][1] == "D"))
                    or (self.tx[e] == self.tx[i] and msgs[e][0] == 1)
                }
                yield f"write m{i}", 0, (rep(msgs, i, (1,) + msgs[i][1:]), nh, lanes, claims, relays, net, bud)
                break
        for g in set(self.tx):
            mem = [i for i in range(n) if self.tx[i] == g]
            if all(msgs[i][0] == 1 for i in mem):
                for to, name in ((2, "commit"), (3, "rollback")):
                    if to == 3 and g not in self.rollback:
                        continue
                    mm = msgs
                    for i in mem:
                        mm = rep(mm, i, (to,) + mm[i][1:])
                    if to == 3 and any(msgs[i][3] for i in mem):
                        raise V("I2", "rolled back after delivery")
                    yield f"{name} t{g}", 0, (mm, hb, lanes, claims, relays, net, bud)
        # time: backoff ends; leases expire
        for i in range(n):
            t = msgs[i]
            if t[1] == "W":
                yield f"m{i} due", 0, (rep(msgs, i, (t[0], "O") + t[2:]), hb, lanes, claims, relays, net, bud)
            if t[1] == "N" and t[0] == 2:
                yield f"m{i} gets lane", 0, (rep(msgs, i, (t[0], "O") + t[2:]), hb, lanes, claims, relays, net, bud)
            if t[1] == "D" and bq:
                yield (
                    f"operator requeues m{i}",
                    1,
                    (
                        rep(msgs, i, (t[0], "O", 0 if self.r_requeue_reset else t[2], t[3], t[4] + 1, 0)),
                        hb,
                        lanes,
                        claims,
                        relays,
                        net,
                        (bc, bp, bl, bq - 1, bs, bd),
                    ),
                )
                if self.discard:
                    yield (
                        f"operator discards m{i}",
                        1,
                        (
                            rep(msgs, i, (t[0], "X") + t[2:]),
                            hb,
                            lanes,
                            claims,
                            relays,
                            net,
                            (bc, bp, bl, bq - 1, bs, bd),
                        ),
                    )
        for l in range(self.nl):
            o, e, live = lanes[l]
            if not live:
                continue
            if o == 9 or (o in (1, 2) and (relays[o - 1][2][l][0] != e or not relays[o - 1][2][l][1])):
                yield f"lease of lane {l} expires", 0, (msgs, hb, rep(lanes, l, (o, e, 0)), claims, relays, net, bud)
            elif not self.r_deadline_early and bp and o in (1, 2):
                mm = self.hit(msgs, [m for b in relays[o - 1][4] for m in b[1] if self.lane[m] == l])
                yield (
                    f"lease of lane {l} expires before the local deadline",
                    1,
                    (mm, hb, rep(lanes, l, (o, e, 0)), claims, relays, net, (bc, bp - 1, bl, bq, bs, bd)),
                )
        for i, m in enumerate(net):
            if i and net[i - 1] == m:
                continue
            yield (
                f"late packet of m{m} reaches the broker",
                0,
                (self.deliver(msgs, hb, m, False), hb, lanes, claims, relays, net[:i] + net[i + 1 :], bud),
            )
        # relays
        for ri in range(2):
            yield from self.relay(s, ri)

    def ghost(self, s, ri):
        """process ri is gone: its owner id never comes back"""
        msgs, hb, lanes, claims, relays, net, bud = s
        me = ri + 1
        ms = (
            {m for b in relays[ri][4] for m in b[1]}
            | {m for o, _, x, _ in claims if o == me for m in x}
            | {m for b in relays[ri][6] for m in b[1]}
        )
        msgs = self.hit(msgs, ms)
        lanes = tuple((9 if o == me else o, e, v) for o, e, v in lanes)
        # what its server still commits is there before anybody takes the lane: the lock sees to it
        claims = tuple(sorted([(9 if o == me else o, *c) for o, *c in claims] + [(9, *b) for b in relays[ri][6]]))
        r = (0, 0, tuple((0, 0) for _ in range(self.nl)), -1, (), (), ())
        return (msgs, hb, lanes, claims, rep(relays, ri, r), net, bud)

    def relay(self, s, ri):
        msgs, hb, lanes, claims, relays, net, bud = s
        bc, bp, bl, bq, bs, bd = bud
        me = ri + 1
        alive, stop, mine, hint, batches, doubt, limbo = relays[ri]
        R = f"r{me} "
        if not alive:
            yield R + "starts", 0, (msgs, hb, lanes, claims, rep(relays, ri, (1, 0, mine, -1, (), (), ())), net, bud)
            return

        def upd(r, msgs=msgs, lanes=lanes, claims=claims, net=net, bud=bud, doubt=doubt, limbo=limbo):
            r = r[:5] + (doubt, limbo)
            return (msgs, hb, lanes, claims, rep(relays, ri, r), net, bud)

        # crash
        if bc:
            g = self.ghost(s, ri)
            yield R + "is killed", 1, g[:6] + ((bc - 1, bp, bl, bq, bs, bd),)
        if bs and not stop:
            yield (
                R + "SIGTERM",
                1,
                upd(
                    (
                        1,
                        1
                        if all(lanes[l][0] != me or lanes[l][1] == mine[l][0] for l in range(self.nl))
                        and all(self.owns(lanes, me, c[1]) for c in claims if c[0] == me)
                        else 2,
                        mine,
                        hint,
                        batches,
                    ),
                    bud=(bc, bp, bl, bq, bs - 1, bd),
                ),
            )
        if stop and not batches:
            own = [l for l in range(self.nl) if mine[l][0]]
            orphan = [c for c in claims if c[0] == me]
            if (
                not own
                and not limbo
                and not (stop == 1 and orphan and self.r_reconcile and all(self.owns(lanes, me, c[1]) for c in orphan))
            ):
                # leaves; if every lane was given back, nothing may remain
                if stop == 1 and (any(c[0] == me for c in claims) or any(o == me for o, _, _ in lanes)):
                    raise V("I10", "clean stop left a claim or a lane behind")
                g = self.ghost(s, ri)
                yield R + "exits", 0, g
        if stop and batches and not self.r_stop_settles:
            yield R + "drops its batch and goes on stopping", 0, upd((1, stop, mine, hint, ()))
        for l in range(self.nl):
            ep, dl = mine[l]
            o, e, live = lanes[l]
            # local deadline passes (pause, slow database): a fault
            if ep and dl and bp and self.r_deadline_early:
                mm = self.hit(
                    msgs,
                    {m for b in batches for m in b[1] if self.lane[m] == l}
                    | {m for c in claims if c[0] == me for m in c[2] if self.lane[m] == l},
                )
                yield (
                    R + f"deadline of lane {l} passes",
                    1,
                    upd((1, stop, rep(mine, l, (ep, 0)), hint, batches), msgs=mm, bud=(bc, bp - 1, bl, bq, bs, bd)),
                )
            nb = tuple(b for b in batches if all(a != l for a, _ in b[0]))
            if ep and not dl:
                # renew loop notices: lane is lost, its work is dropped (stop becomes unclean = 2)
                yield (
                    R + f"gives lane {l} up, drops its work",
                    0,
                    upd(
                        (1, 2 if stop else 0, rep(mine, l, (0, 0)), hint, nb),
                        doubt=self.doubted(doubt, (l,)) if nb != batches and self.r_settle_doubt else doubt,
                    ),
                )
                if not self.r_late_ignored and o == me and e == ep and live:
                    yield (
                        R + f"a renewal of lane {l} is answered late",
                        0,
                        upd((1, stop, rep(mine, l, (ep, 1)), hint, batches)),
                    )
            if ep and (o != me or e != ep) and dl:
                # renew answers: not yours (only reachable by mutants)
                yield R + f"learns lane {l} is lost", 0, upd((1, 2 if stop else 0, rep(mine, l, (0, 0)), hint, nb))
            if not self.r_drop_no_renew and o == me and not ep and e:
                yield (
                    R + f"renews lane {l} it had dropped",
                    0,
                    upd((1, stop, rep(mine, l, (e, 1)), hint, batches), lanes=rep(lanes, l, (o, e, 1))),
                )
            if stop and ep and l in doubt and not any(a == l for b in batches for a, _ in b[0]):
                # nothing is claimed any more, so the doubt stays: the lane is left to its lease
                yield (
                    R + f"leaves lane {l}, of which it is in doubt",
                    0,
                    upd((1, 2, rep(mine, l, (0, 0)), hint, batches)),
                )
            # take
            locked = self.r_claim_lock and any(a == l for r in relays for b in r[6] for a, _ in b[0])
            if (
                not locked
                and not stop
                and not (ep and dl)
                and (o == 0 or not live or (not self.r_take_expired and o != me))
            ):
                ne = e + 1
                mm, nc = msgs, []
                for c in claims:
                    if any(a == l for a, _ in c[1]):
                        if self.r_take_attempt:
                            for m in c[2]:
                                if self.lane[m] == l or not self.r_claim_per_lane:
                                    mm = self.lost_with_its_relay(mm, m, c[3])
                        if not self.r_take_unclaim:
                            nc.append(c)
                    else:
                        nc.append(c)
                yield (
                    R + f"takes lane {l}",
                    0,
                    upd(
                        (1, stop, rep(mine, l, (ne, 1)), -1, nb if self.r_take_drops else batches),
                        msgs=mm,
                        lanes=rep(lanes, l, (me, ne, 1)),
                        claims=tuple(nc),
                        doubt=tuple(d for d in doubt if d != l),
                    ),
                )
            # release: clean stop, or hand-over
            if not locked and ep and dl and o == me and e == ep and (stop or (self.handover and relays[1 - ri][0])):
                mineclaim = any(c[0] == me and any(a == l for a, _ in c[1]) for c in claims)
                held = any(a == l for b in batches for a, _ in b[0])
                if (not mineclaim and not held) or not self.r_release_drained or (not self.r_stop_settles and not held):
                    yield (
                        R + f"releases lane {l}",
                        0,
                        upd((1, stop, rep(mine, l, (0, 0)), hint, batches), lanes=rep(lanes, l, (0, e, 0))),
                    )
        # what became of a claim whose client gave up
        for i, (lep, ms, alone) in enumerate(limbo):
            left = limbo[:i] + limbo[i + 1 :]
            yield (
                R + f"commit of the claim of {ms} lands",
                0,
                upd(relays[ri], claims=tuple(sorted(claims + ((me, lep, ms, alone),))), limbo=left),
            )
            yield R + f"claim of {ms} is rolled back", 0, upd(relays[ri], limbo=left)
        # R22 without its lock: the claims of mine that are there now, and the doubt is over
        if self.r_reconcile and not self.r_behind_lock:
            for l in doubt:
                if mine[l][0] and mine[l][1] and not any(a == l for b in batches for a, _ in b[0]):
                    lep = ((l, mine[l][0]),)
                    yield (
                        R + f"drops its orphans in lane {l}",
                        0,
                        upd(
                            relays[ri],
                            claims=tuple(c for c in claims if c[:2] != (me, lep)),
                            doubt=tuple(d for d in doubt if d != l),
                        ),
                    )
        # claim
        if self.r_gc:
            for c in claims:
                if all(lanes[a][0] == me and mine[a] == (lanes[a][1], 1) and x < lanes[a][1] for a, x in c[1]):
                    yield (
                        R + "removes a claim of an older epoch",
                        0,
                        upd(relays[ri], claims=tuple(x for x in claims if x != c)),
                    )
        if (
            not stop
            and len(batches) < self.NB
            and not (self.r_one_claim and any(b[4] == 2 for b in batches))
            and not (self.r_unresolved and any(b[4] == 6 for b in batches))
        ):
            groups = (
                [(l,) for l in range(self.nl)]
                if self.r_claim_per_lane
                else [tuple(l for l in range(self.nl) if mine[l][0] and mine[l][1])]
            )
            for g in groups:
                if not g or not all(mine[l][0] and (mine[l][1] or not self.r_deadline) for l in g):
                    continue
                lep = tuple((l, mine[l][0]) for l in g)
                if self.r_claim_guard and not self.owns(lanes, me, lep):
                    continue
                if self.r_claim_lock and any(a in g for r in relays for b in r[6] for a, _ in b[0]):
                    continue
                s2, cl, db = s, claims, doubt
                if self.r_reconcile and any(l in doubt for l in g):
                    if not self.r_behind_lock:
                        continue
                    if any(a in g for b in batches for a, _ in b[0]):
                        continue
                    cl = tuple(c for c in claims if c[:2] != (me, lep))
                    db = tuple(d for d in doubt if d not in g)
                    s2 = s[:3] + (cl,) + s[4:]
                    if not self.candidates(s2, ri, g, -1):
                        yield (
                            R + f"claims nothing, drops its orphans in lane {g[0]}",
                            0,
                            upd(relays[ri], claims=cl, doubt=db),
                        )
                modes = [-1]
                if self.hint:
                    modes = [hint] if hint == -1 else ([hint, -1] if self.r_sweep else [hint])
                if not self.r_guard_after_scan and not any(b[4] == 4 for b in batches):
                    infl = {m for c in claims for m in c[2]}
                    blk = tuple(
                        sorted(
                            {
                                self.keys[m]
                                for m in range(self.n)
                                if msgs[m][0] == 2
                                and (
                                    m in infl
                                    or msgs[m][1] in "WN"
                                    or (msgs[m][1] == "D" and self.policy == "park")
                                    or (msgs[m][1] == "O" and m <= hint)
                                )
                            }
                        )
                    )
                    yield (
                        R + f"claim statement 1: waiting keys {blk}",
                        0,
                        upd((1, stop, mine, hint, batches + ((lep, blk, (), 0, 4),))),
                    )
                    continue
                for start in modes:
                    ms = tuple(self.candidates(s2, ri, g, start))
                    if not ms:
                        continue
                    if not self.may_travel(msgs, ms, batches, claims, me):
                        continue
                    alone = int(self.buries(msgs, ms) and (not batches or not self.r_exclusive))
                    nh = max(hint, max(ms)) if self.hint else -1
                    row = (me, lep, ms, alone)
                    if not self.r_claim_lock:
                        # guard read now, row written at commit: a transaction in flight
                        b = (lep, ms, tuple("-" for _ in ms), 0, 2)
                        yield R + f"claim tx reads {ms}", 0, upd((1, stop, mine, nh, batches + (b,)))
                        continue
                    b = (lep, ms, tuple("-" for _ in ms), 0, 0)
                    nc = tuple(sorted(cl + (row,)))
                    yield (
                        R + f"claims {ms}" + ("" if start == -1 else f" past hint {start}"),
                        0,
                        upd((1, stop, mine, nh, batches + (b,)), claims=nc, doubt=db),
                    )
                    if bd:
                        yield (
                            R + f"claims {ms}, answer lost",
                            1,
                            upd(
                                (1, stop, mine, nh, batches),
                                claims=nc,
                                bud=(bc, bp, bl, bq, bs, bd - 1),
                                doubt=self.doubted(db, g),
                            ),
                        )
                        if self.commit2:
                            yield (
                                R + f"claims {ms}, gives up while its commit is under way",
                                1,
                                upd(
                                    (1, stop, mine, nh, batches),
                                    claims=cl,
                                    bud=(bc, bp, bl, bq, bs, bd - 1),
                                    doubt=self.doubted(db, g),
                                    limbo=limbo + ((lep, ms, alone),),
                                ),
                            )
        # work on batches
        for bi, b in enumerate(batches):
            lep, ms, outs, chk, sph = b

            def withb(nb):
                return (1, stop, mine, hint, rep(batches, bi, nb))

            def without(st=None):
                return (1, stop if st is None else st, mine, hint, batches[:bi] + batches[bi + 1 :])

            if sph == 2:  # claim transaction in flight, guard already read
                yield (
                    R + f"claim tx of {ms} commits",
                    0,
                    upd(withb((lep, ms, outs, 0, 0)), claims=tuple(sorted(claims + ((me, lep, ms, 0),)))),
                )
                continue
            if sph == 5:
                yield R + f"{ms} refused by the fence", 0, upd(without())
                continue
            if sph == 4:
                infl = {m for c in claims for m in c[2]}
                for start in [hint, -1] if hint >= 0 else [-1]:
                    x = tuple(
                        m
                        for m in range(self.n)
                        if m > start
                        and msgs[m][0] == 2
                        and msgs[m][1] == "O"
                        and self.keys[m] not in ms
                        and m not in infl
                    )[: self.B]
                    if x and self.owns(lanes, me, lep):
                        yield (
                            R + f"claim statement 2 claims {x} past {start}",
                            0,
                            upd(
                                (
                                    1,
                                    stop,
                                    mine,
                                    max(hint, max(x)),
                                    rep(batches, bi, (lep, x, tuple("-" for _ in x), 0, 0)),
                                ),
                                claims=tuple(sorted(claims + ((me, lep, x, 0),))),
                            ),
                        )
                yield R + "claim statement 2: nothing", 0, upd(without())
                continue
            if not self.r_take_drops and any(mine[a][0] != x for a, x in lep):
                yield R + f"drops the stale batch {ms}", 0, upd(without())
            stopped = set()
            nxt = None
            for i, m in enumerate(ms):
                k = self.keys[m]
                if outs[i] == "-":
                    if k not in stopped:
                        nxt = i
                        break
                elif outs[i] != "S" and self.r_stop_key:
                    stopped.add(k)
            dlok = all(mine[a] == (x, 1) for a, x in lep) or not self.r_deadline
            if sph == 0 and nxt is not None and not chk and self.split_check and dlok:
                yield R + f"checks its deadline for m{ms[nxt]}", 0, upd(withb((lep, ms, outs, 1, 0)))
            if sph == 0 and nxt is not None and (chk or (dlok and not self.split_check)):
                m = ms[nxt]
                stale = not self.owns(lanes, me, lep)
                if stale and not self.split_check:
                    raise V("I12", f"m{m} sent by a relay whose lane was taken")

                def out(o):
                    return withb((lep, ms, rep(outs, nxt, o), 0, 0))

                if m in self.poison:
                    for d in (0, 1):
                        s2 = (self.deliver(msgs, hb, m, stale) if d else msgs,) + s[1:]
                        yield R + f"sends m{m} and dies of it" + (" (delivered)" if d else ""), 0, self.ghost(s2, ri)
                else:

                    def fz(st):  # broker/inbox saw this epoch: older epochs of the lane are refused from now on
                        if not self.fence:
                            return st
                        a, x = lep[0]
                        rr = tuple(
                            r[:4]
                            + (
                                tuple(
                                    q[:4] + (5,) if q[4] == 0 and any(l == a and y < x for l, y in q[0]) else q
                                    for q in r[4]
                                ),
                            )
                            + r[5:]
                            for r in st[4]
                        )
                        return st[:4] + (rr,) + st[5:]

                    yield R + f"sends m{m}: sent", 0, fz(upd(out("S"), msgs=self.deliver(msgs, hb, m, stale)))
                    if m in self.fail:
                        yield R + f"sends m{m}: failed", 1, upd(out("F"))
                    if m in self.reject:
                        yield R + f"sends m{m}: rejected", 1, upd(out("R"))
                    if m in self.unavail:
                        yield R + f"sends m{m}: unavailable", 1, upd(out("V"))
                    if bl:
                        nbud = (bc, bp, bl - 1, bq, bs, bd)
                        un = "F" if self.r_unknown_failed else "S"
                        h = self.hit(msgs, [m])
                        yield (
                            R + f"sends m{m}: delivered, answer lost",
                            1,
                            fz(upd(out(un), msgs=self.deliver(h, hb, m, stale), bud=nbud)),
                        )
                        if not self.r_unknown_failed:
                            yield R + f"sends m{m}: lost", 1, upd(out(un), msgs=h, bud=nbud)
                        if self.delay:
                            yield (
                                R + f"sends m{m}: slow, gives up waiting",
                                1,
                                upd(out(un), msgs=h, net=tuple(sorted(net + (m,))), bud=nbud),
                            )
            # settle
            if (sph == 6 or (sph == 0 and (nxt is None or stop))) and not chk:
                cur = lep if self.r_batch_epoch else tuple((a, mine[a][0]) for a, _ in lep)
                good = self.owns(lanes, me, cur)
                row = (me, lep, ms)
                have = any(c[:3] == row for c in claims) or not self.r_settle_claim
                if not self.r_settle_lock:
                    if good:
                        yield R + f"settle tx of {ms} reads its guard", 0, upd(withb((lep, ms, outs, 0, 1)))
                    else:
                        yield R + f"settle of {ms} refused", 0, upd(without())
                elif good or not self.r_settle_guard:
                    yield from self.settle(s, ri, bi, withb, without, upd, good, have)
                else:
                    yield R + f"settle of {ms} refused", 0, upd(without())
                if not all(mine[a] == (x, 1) for a, x in lep):
                    yield (
                        R + f"settle of {ms} gives up at the deadline",
                        0,
                        upd(
                            without(), doubt=self.doubted(doubt, [a for a, _ in lep]) if self.r_settle_doubt else doubt
                        ),
                    )
            if self.quiet and sph == 0 and bd:
                yield R + f"the trip of {ms} ends quietly", 1, upd(without(), bud=(bc, bp, bl, bq, bs, bd - 1))
            if sph == 1:
                good = self.owns(lanes, me, lep)
                yield from self.settle(s, ri, bi, withb, without, upd, good, True)
            if sph == 3 and not self.owns(lanes, me, lep):
                yield R + "second settle tx refused", 0, upd(without())
            elif sph == 3:  # non-atomic settle: claim removed, outcomes still to write
                yield from self.settle(s, ri, bi, withb, without, upd, self.owns(lanes, me, lep), True)

    def settle(self, s, ri, bi, withb, without, upd, good, have):
        msgs, hb, lanes, claims, relays, net, bud = s
        bc, bp, bl, bq, bs, bd = bud
        R = f"r{ri + 1} "
        lep, ms, outs, chk, sph = relays[ri][4][bi]
        row = (ri + 1, lep, ms)
        nc = tuple(c for c in claims if c[:3] != row)
        if not self.r_atomic_settle and sph == 0:
            yield R + f"settle of {ms}: claim removed first", 0, upd(withb((lep, ms, outs, 0, 3)), claims=nc)
            return
        mm = self.apply(msgs, ms, outs) if have else msgs
        if not self.really(lanes, ri + 1, lep) and mm != msgs:
            raise V("I6", f"a stale relay settled {ms} as {outs}")
        if not any(c[:3] == row for c in claims) and sph in (0, 6) and mm != msgs:
            raise V("I13", f"{ms} {outs} settled a second time")
        yield R + f"settles {ms} {''.join(outs)}", 0, upd(without(), msgs=mm, claims=nc)
        if bd:
            nbud = (bc, bp, bl, bq, bs, bd - 1)
            if self.r_settle_retry:
                yield (
                    R + f"settles {ms} {''.join(outs)}, answer lost",
                    1,
                    upd(withb((lep, ms, outs, 0, 6 if self.r_settle_closes else 0)), msgs=mm, claims=nc, bud=nbud),
                )
            else:
                yield (
                    R + f"settle of {ms} fails, batch forgotten",
                    1,
                    upd(without(), bud=nbud, doubt=self.doubted(relays[ri][5], [a for a, _ in lep])),
                )

    def drained(self, s):
        msgs, hb, lanes, claims, relays, net, bud = s
        if claims or net or any(r[4] or r[6] for r in relays):
            return False
        for m in range(self.n):
            tx, st = msgs[m][:2]
            if tx == 3:
                continue
            if tx != 2:
                return False
            if st in "PDX":
                continue
            if self.policy == "park" and any(msgs[e][0] == 2 and msgs[e][1] == "D" for e in self.earlier[m]):
                continue
            return False
        return True

    def i0(self, s):
        """local deadline ok => the lease is live and mine"""
        msgs, hb, lanes, claims, relays, net, bud = s
        for ri, r in enumerate(relays):
            if r[0]:
                for l, (e, d) in enumerate(r[2]):
                    if e and d and (lanes[l][:2] != (ri + 1, e) or not lanes[l][2]):
                        raise V("I0", f"r{ri + 1} believes in lane {l}, table says {lanes[l]}")

    def i11(self, s):
        msgs = s[0]
        if self.deaddel:
            for m in range(self.n):
                if msgs[m][1] == "D" and msgs[m][3]:
                    raise V("DD", f"m{m} is dead, yet it was delivered")
        if self.handinv:
            for m in range(self.n):
                if msgs[m][1] == "D" and m not in self.poison and m not in self.reject and not self.fail:
                    raise V("I11", f"m{m} is dead although nothing was ever wrong with it")

    handinv = False
