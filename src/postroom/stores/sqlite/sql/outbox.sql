-- name: give_hash
-- Rows that a stranger wrote get their lane here, in the claim's own transaction and before it looks at anything: no
-- later message of their key can pass them by.
UPDATE outbox
SET hash = postroom_hash(coalesce(key, id))
WHERE hash IS NULL

-- name: free_lane
-- R11: mine, at this epoch, with nothing in flight. BEGIN IMMEDIATE is the lock that holds to the commit.
SELECT lane
FROM outbox_lane l
WHERE lane = :lane
  AND owner = :owner  -- guard: owner
  AND epoch = :epoch  -- guard: epoch
  AND NOT EXISTS (SELECT 1 FROM outbox_claim c WHERE c.lane = l.lane)  -- guard: nothing in flight

-- name: lift_due
UPDATE outbox
SET shelf = NULL
WHERE seq IN (
    SELECT seq FROM outbox
    WHERE settled_at IS NULL AND shelf = 'time'
      AND lane = :lane
      AND due_at <= :now
    ORDER BY seq
    LIMIT :limit)
RETURNING seq

-- name: walk
-- The line of a lane from its very start: openness decides, never a position (R15).
SELECT o.seq, o.key, o.lost, o.tried_at IS NOT NULL AS tried,
    o.due_at > :now AS early,
    h.key IS NOT NULL AS held
FROM outbox o
LEFT JOIN outbox_hold h ON h.key = o.key
WHERE o.settled_at IS NULL AND o.shelf IS NULL
  AND o.lane = :lane
ORDER BY o.seq
LIMIT :limit

-- name: due_holds
SELECT key
FROM outbox_hold
WHERE lane = :lane
  AND until <= :now  -- guard: the wait is over
ORDER BY until
LIMIT :limit

-- name: behind
-- What waited behind a head whose time has come, the head first.
SELECT seq, key, lost, tried_at IS NOT NULL AS tried,
    due_at > :now AS early,
    0 AS held
FROM outbox
WHERE settled_at IS NULL AND shelf = 'key'
  AND key = :key
ORDER BY seq
LIMIT :limit

-- name: shelve
-- Out of the line, so that nobody walks past it again: behind its key's head, or until it is due.
UPDATE outbox
SET shelf = :shelf
WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: claim
INSERT INTO outbox_claim (lane, epoch, owner, seqs, claimed_at, alone)
VALUES (:lane, :epoch, :owner, :seqs, :now, :alone)
RETURNING id

-- name: claimed
-- The payload as bytes: what a stranger wrote may be no text at all.
SELECT seq, attempts, coalesce(expires_at <= :now, 0),
    id, type, key, aggregate, topic, coalesce(CAST(payload AS BLOB), body), content_type, headers,
    correlation_id, causation_id, traceparent, idempotency_key, time, expires_at
FROM outbox
WHERE seq IN (SELECT value FROM json_each(:seqs))
ORDER BY seq

-- name: peek
SELECT EXISTS (SELECT 1 FROM outbox WHERE hash IS NULL)
    OR EXISTS (
        SELECT 1 FROM outbox
        WHERE settled_at IS NULL AND shelf IS NULL AND lane IN (SELECT value FROM json_each(:lanes)))
    OR EXISTS (
        SELECT 1 FROM outbox
        WHERE settled_at IS NULL AND shelf = 'time' AND lane IN (SELECT value FROM json_each(:lanes)) AND due_at <= :now)
    OR EXISTS (
        SELECT 1 FROM outbox_hold WHERE lane IN (SELECT value FROM json_each(:lanes)) AND until <= :now)

-- name: fence
-- R20: whoever takes the lane over deletes the claim. Without it, nothing of this settle is written.
DELETE FROM outbox_claim
WHERE id = :id  -- guard: this claim

-- name: is_mine
-- R21: no claim row, and nobody took the lane since: this settle was carried out before. Else it is lost.
SELECT lane
FROM outbox_lane
WHERE lane = :lane
  AND epoch = :epoch  -- guard: epoch

-- name: publish
UPDATE outbox
SET outcome = 'published',
    settled_at = :now,
    tried_at = :now,
    attempts = attempts + 1,
    shelf = NULL,
    lost = 0,
    last_error_code = NULL,
    last_error = NULL
WHERE seq IN (SELECT value FROM json_each(:seqs))
  AND settled_at IS NULL  -- guard: open

-- name: expire
UPDATE outbox
SET outcome = 'expired',
    settled_at = :now,
    shelf = NULL,
    lost = 0
WHERE seq = :seq
  AND settled_at IS NULL  -- guard: open

-- name: bury
UPDATE outbox
SET outcome = 'dead',
    settled_at = :now,
    tried_at = :now,
    attempts = attempts + 1,
    shelf = CASE WHEN :park AND key IS NOT NULL THEN 'park' END,
    lost = 0,
    last_error_code = :code,
    last_error = :error
WHERE seq = :seq
  AND settled_at IS NULL  -- guard: open

-- name: retry
UPDATE outbox
SET attempts = attempts + :spent,
    tried_at = :now,
    due_at = :due_at,
    shelf = CASE WHEN key IS NULL THEN 'time' ELSE 'key' END,
    lost = lost + :lost,
    last_error_code = :code,
    last_error = :error
WHERE seq = :seq
  AND settled_at IS NULL  -- guard: open

-- name: free_keys
-- A hold with nothing behind it and no dead head is over.
DELETE FROM outbox_hold
WHERE key IN (SELECT value FROM json_each(:keys))
  AND NOT EXISTS (
      SELECT 1 FROM outbox o WHERE o.key = outbox_hold.key AND o.settled_at IS NULL AND o.shelf = 'key')
  AND NOT EXISTS (
      SELECT 1 FROM outbox o WHERE o.key = outbox_hold.key AND o.outcome = 'dead' AND o.shelf = 'park')

-- name: hold_keys
-- A key waits until its failed head's next try; with a dead head that parks it, until a person acts.
INSERT INTO outbox_hold (key, lane, until)
SELECT key, min(lane), CASE WHEN max(outcome IS 'dead') THEN NULL ELSE max(coalesce(due_at, 0)) END
FROM (
    SELECT key, lane, outcome, CASE WHEN tried_at IS NOT NULL THEN due_at END AS due_at
    FROM outbox
    WHERE key IN (SELECT value FROM json_each(:keys)) AND settled_at IS NULL AND shelf = 'key'
    UNION ALL
    SELECT key, lane, outcome, NULL
    FROM outbox
    WHERE key IN (SELECT value FROM json_each(:keys)) AND outcome = 'dead' AND shelf = 'park')
WHERE true
GROUP BY key
ON CONFLICT (key) DO UPDATE SET until = excluded.until

-- name: drop_orphans
-- R22: claims of mine whose answer was lost; nothing of them is held. BEGIN IMMEDIATE is the lock, as above.
DELETE FROM outbox_claim
WHERE lane = :lane
  AND owner = :owner  -- guard: owner
  AND epoch = :epoch  -- guard: epoch
