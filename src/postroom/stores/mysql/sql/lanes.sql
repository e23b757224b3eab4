-- name: join
INSERT INTO outbox_relay (owner, name, host, pid, version, process, seen_at)
VALUES (:owner, :name, :host, :pid, :version, :process, coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)))
ON DUPLICATE KEY UPDATE seen_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6))

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

-- name: free
-- R5: free, or its lease ran out by the database's clock, or its owner's process is gone; whoever is quicker has it. Along the primary key: a sort would
-- lock every lane it looks at before the limit.
SELECT lane
FROM outbox_lane FORCE INDEX (PRIMARY)
WHERE owner IS NULL
   OR lease_until < coalesce(CAST(:now AS datetime(6)), utc_timestamp(6))  -- guard: lease ran out
   OR JSON_CONTAINS(:gone, JSON_QUOTE(owner))
ORDER BY lane
LIMIT :limit
FOR UPDATE SKIP LOCKED

-- name: take
UPDATE outbox_lane FORCE INDEX (PRIMARY)
SET owner = :owner,
    epoch = epoch + 1,
    lease_until = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)) + INTERVAL :lease MICROSECOND
WHERE lane IN :lanes

-- name: taken
SELECT lane, epoch, owner, lease_until
FROM outbox_lane
WHERE lane IN :lanes
ORDER BY lane

-- name: in_flight
-- Before `let_go`, which cannot say what it deleted. Locked: a settle of the same claim comes before it, or after.
SELECT seqs, alone
FROM outbox_claim FORCE INDEX (PRIMARY)
WHERE lane IN :lanes
ORDER BY lane
FOR UPDATE

-- name: let_go
-- R6: every claim of a taken lane is an earlier owner's, also one of mine. Deleting it is what stops that owner's settle:
-- the two wait for each other on this row.
DELETE c
FROM JSON_TABLE(:listed, '$[*]' COLUMNS (lane int PATH '$')) AS l
STRAIGHT_JOIN outbox_claim AS c FORCE INDEX (PRIMARY) ON c.lane = l.lane

-- name: lost
SELECT seq, `key`, attempts, lost
FROM outbox
WHERE seq IN :seqs
  AND settled_at IS NULL
ORDER BY seq

-- name: mine
-- R11: mine, at this epoch; locked to the commit, so that neither a take nor another claim of mine comes between.
-- Lanes are always locked in order, here and in the claim: else the two could wait for each other for ever. By the primary
-- key alone: on the way along the table we would wait for lanes that are not ours.
SELECT lane, epoch, coalesce(CAST(:now AS datetime(6)), utc_timestamp(6))
FROM outbox_lane FORCE INDEX (PRIMARY)
WHERE lane IN :lanes
  AND owner = :owner  -- guard: owner
  AND (lane, epoch) IN :held  -- guard: epoch
ORDER BY lane
FOR UPDATE

-- name: renew
UPDATE outbox_lane FORCE INDEX (PRIMARY)
SET lease_until = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)) + INTERVAL :lease MICROSECOND
WHERE lane IN :lanes

-- name: idle
-- R24: only a lane with nothing in flight. Looked at behind the lock, and in a statement of its own: a claim that is just
-- being made holds the lane's lock until it commits, and a locking read sees other things than its sub-selects do.
SELECT l.lane
FROM outbox_lane l
WHERE l.lane IN :lanes
  AND NOT EXISTS (SELECT 1 FROM outbox_claim c WHERE c.lane = l.lane)  -- guard: nothing in flight

-- name: release
UPDATE outbox_lane FORCE INDEX (PRIMARY)
SET owner = NULL,
    lease_until = NULL
WHERE lane IN :lanes
