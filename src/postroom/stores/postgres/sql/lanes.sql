-- name: join
INSERT INTO outbox_relay (owner, name, host, pid, version, process, seen_at)
VALUES (:owner, :name, :host, :pid, :version, :process, coalesce(CAST(:now AS timestamptz), clock_timestamp()))
ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at
RETURNING xmax = 0 -- it was not there before

-- name: leave
DELETE FROM outbox_relay
WHERE owner = :owner

-- name: relays
SELECT owner, name, host, pid, version, process, seen_at
FROM outbox_relay
ORDER BY owner

-- name: lanes
SELECT lane, epoch, owner, lease_until
FROM outbox_lane
ORDER BY lane

-- name: take
-- R5: free, or its lease ran out by the database's clock, or its owner's process is gone; whoever is quicker has it. Materialized: as a plain sub-select
-- the planner may run it again and take more than the limit.
WITH free AS MATERIALIZED (
    SELECT lane FROM outbox_lane
    WHERE owner IS NULL
       OR lease_until < coalesce(CAST(:now AS timestamptz), clock_timestamp())  -- guard: lease ran out
       OR owner = ANY (CAST(:gone AS text[]))
    ORDER BY lane
    LIMIT :limit
    FOR UPDATE SKIP LOCKED)
UPDATE outbox_lane
SET owner = :owner,
    epoch = epoch + 1,
    lease_until = coalesce(CAST(:now AS timestamptz), clock_timestamp()) + CAST(:lease AS interval)
FROM set_config('idle_in_transaction_session_timeout', '5s', true)
WHERE lane = ANY (ARRAY(SELECT lane FROM free))
RETURNING lane, epoch, owner, lease_until

-- name: let_go
-- R6: every claim of a taken lane is an earlier owner's, also one of mine. Deleting it is what stops that owner's settle:
-- the two wait for each other on this row.
DELETE FROM outbox_claim
WHERE lane = ANY (:lanes)
RETURNING seqs, alone

-- name: lost
SELECT seq, key, attempts, lost
FROM outbox
WHERE seq = ANY (:seqs)
  AND settled_at IS NULL
ORDER BY seq

-- name: renew
-- Lanes are always locked in order, here and in the claim: else the two could wait for each other for ever.
WITH mine AS MATERIALIZED (
    SELECT l.lane
    FROM outbox_lane l
    JOIN unnest(CAST(:lanes AS integer[]), CAST(:epochs AS bigint[])) AS held (lane, epoch) ON held.lane = l.lane
    WHERE l.owner = :owner  -- guard: owner
      AND l.epoch = held.epoch  -- guard: epoch
    ORDER BY l.lane
    FOR UPDATE OF l)
UPDATE outbox_lane
SET lease_until = coalesce(CAST(:now AS timestamptz), clock_timestamp()) + CAST(:lease AS interval)
WHERE lane = ANY (ARRAY(SELECT lane FROM mine))
RETURNING lane

-- name: release
-- R24: only a lane with nothing in flight. The lock comes before the look at the claims: a claim that is just being
-- made holds the lane's lock until it commits.
WITH mine AS MATERIALIZED (
    SELECT l.lane
    FROM outbox_lane l
    JOIN unnest(CAST(:lanes AS integer[]), CAST(:epochs AS bigint[])) AS held (lane, epoch) ON held.lane = l.lane
    WHERE l.owner = :owner  -- guard: owner
      AND l.epoch = held.epoch  -- guard: epoch
    ORDER BY l.lane
    FOR UPDATE OF l)
UPDATE outbox_lane
SET owner = NULL,
    lease_until = NULL
WHERE lane = ANY (ARRAY(SELECT lane FROM mine))
  AND NOT EXISTS (SELECT 1 FROM outbox_claim c WHERE c.lane = outbox_lane.lane)  -- guard: nothing in flight
RETURNING lane
