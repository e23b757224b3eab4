-- name: join
INSERT INTO outbox_relay (owner, name, host, pid, version, process, seen_at)
VALUES (:owner, :name, :host, :pid, :version, :process, :now)
ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at

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
-- R5: free, or its lease ran out by the clock of this machine, or its owner's process is gone. BEGIN IMMEDIATE stands behind it: nobody else takes now.
UPDATE outbox_lane
SET owner = :owner,
    epoch = epoch + 1,
    lease_until = :lease_until
WHERE lane IN (
    SELECT lane FROM outbox_lane
    WHERE owner IS NULL
       OR lease_until < :now  -- guard: lease ran out
       OR owner IN (SELECT value FROM json_each(:gone))
    ORDER BY lane
    LIMIT :limit)
RETURNING lane, epoch, owner, lease_until

-- name: let_go
-- R6: every claim of a taken lane is an earlier owner's, also one of mine. Deleting it is what stops that owner's settle.
DELETE FROM outbox_claim
WHERE lane = :lane
RETURNING seqs, alone

-- name: lost
SELECT seq, key, attempts, lost
FROM outbox
WHERE seq IN (SELECT value FROM json_each(:seqs))
  AND settled_at IS NULL
ORDER BY seq

-- name: renew
-- All of them at once: a relay does this for as long as it lives, and has nothing else to do when it is idle.
UPDATE outbox_lane
SET lease_until = :lease_until
FROM json_each(:lanes) AS held
WHERE lane = CAST(held.key AS INTEGER)
  AND owner = :owner  -- guard: owner
  AND epoch = held.value  -- guard: epoch
RETURNING lane

-- name: release
-- R24: only a lane with nothing in flight.
UPDATE outbox_lane
SET owner = NULL,
    lease_until = NULL
WHERE lane = :lane
  AND owner = :owner  -- guard: owner
  AND epoch = :epoch  -- guard: epoch
  AND NOT EXISTS (SELECT 1 FROM outbox_claim c WHERE c.lane = outbox_lane.lane)  -- guard: nothing in flight
