-- name: free_lanes
-- The lanes with nothing in flight, and whether their line can be read as it stands. Looked at only now that they are
-- locked: what was committed before the lock is seen, and nobody but a settle comes after.
SELECT l.lane,
    true
    AND NOT EXISTS (SELECT 1 FROM outbox_hold h WHERE h.lane = l.lane AND h.until <= :now)  -- guard: no wait is over
    AND NOT EXISTS (SELECT 1 FROM outbox d WHERE d.later = l.lane AND d.due_at <= :now)  -- guard: nothing became due
    AS plain
FROM outbox_lane l
WHERE l.lane IN :lanes
  AND NOT EXISTS (SELECT 1 FROM outbox_claim c WHERE c.lane = l.lane)  -- guard: nothing in flight
ORDER BY l.lane

-- name: one_line
-- The line of a lane from its very start: openness decides, never a position (R15).
SELECT in_line AS lane, seq FROM outbox WHERE in_line = :lane ORDER BY seq LIMIT :want

-- name: line
-- The common case: nothing of these lanes waits. What stands first in each line (`one_line`, for each lane) is read whole,
-- in one snapshot with what is on hold (R13). A lane where a message is not like the others (`odd`) is looked at closely.
SELECT l.lane, o.seq,
    false
    OR o.lost > 0  -- guard: nobody who was lost
    OR coalesce(o.due_at > :now, false)  -- guard: nothing before its time
    OR h.`key` IS NOT NULL  -- guard: nothing of a waiting key
    AS odd,
    o.attempts, coalesce(o.expires_at <= :now, false),
    o.id, o.type, o.`key`, o.aggregate, o.topic, coalesce(CAST(o.payload AS binary), o.body), o.content_type, o.headers,
    o.correlation_id, o.causation_id, o.traceparent, o.idempotency_key,
    date_format(CASE WHEN o.time >= '0001-01-01' THEN o.time ELSE o.created_at END, '%Y-%m-%dT%H:%i:%s.%fZ'),
    CASE WHEN o.expires_at >= '0001-01-01' THEN o.expires_at END
FROM (:lines) AS l
STRAIGHT_JOIN outbox o ON o.seq = l.seq
LEFT JOIN outbox_hold h ON h.`key` = o.`key`

-- name: due
-- The lowest seqs first: see `ceiling` in the code.
SELECT seq
FROM outbox
WHERE later = :lane
  AND due_at <= :now
ORDER BY seq
LIMIT :limit

-- name: lift_due
-- What is due now goes back in the line.
UPDATE outbox FORCE INDEX (PRIMARY)
SET shelf = NULL
WHERE seq IN :seqs

-- name: walk
SELECT o.seq, o.`key`, o.lost, o.tried_at IS NOT NULL AS tried,
    coalesce(o.due_at > :now, false) AS early,
    h.`key` IS NOT NULL AS held
FROM (SELECT seq FROM outbox WHERE in_line = :lane ORDER BY seq LIMIT :limit) AS l
STRAIGHT_JOIN outbox o ON o.seq = l.seq
LEFT JOIN outbox_hold h ON h.`key` = o.`key`
ORDER BY o.seq

-- name: due_holds
SELECT `key`
FROM outbox_hold
WHERE lane = :lane
  AND until <= :now  -- guard: the wait is over
ORDER BY until
LIMIT :limit

-- name: behind
-- What waited behind a head whose time has come, the head first.
SELECT seq, `key`, lost, tried_at IS NOT NULL AS tried,
    coalesce(due_at > :now, false) AS early,
    false AS held
FROM outbox
WHERE aside = :key AND shelf = 'key'
  AND settled_at IS NULL
ORDER BY seq
LIMIT :limit

-- name: shelve
-- Out of the line, so that nobody walks past it again: behind its key's head, or until it is due.
UPDATE outbox FORCE INDEX (PRIMARY)
SET shelf = :shelf
WHERE seq IN :seqs

-- name: claim
INSERT INTO outbox_claim (lane, epoch, owner, seqs, claimed_at, alone)
VALUES (:lane, :epoch, :owner, :seqs, :now, :alone)

-- name: claim_ids
SELECT lane, id
FROM outbox_claim
WHERE lane IN :lanes

-- name: claimed
SELECT o.lane, o.seq, false, o.attempts, coalesce(o.expires_at <= :now, false),
    o.id, o.type, o.`key`, o.aggregate, o.topic, coalesce(CAST(o.payload AS binary), o.body), o.content_type, o.headers,
    o.correlation_id, o.causation_id, o.traceparent, o.idempotency_key,
    date_format(CASE WHEN o.time >= '0001-01-01' THEN o.time ELSE o.created_at END, '%Y-%m-%dT%H:%i:%s.%fZ'),
    CASE WHEN o.expires_at >= '0001-01-01' THEN o.expires_at END
FROM outbox o
WHERE o.seq IN :seqs
ORDER BY o.seq

-- name: peek
SELECT EXISTS (SELECT 1 FROM outbox WHERE in_line IN :lanes)
    OR EXISTS (
        SELECT 1 FROM outbox
        WHERE later IN :lanes
          AND due_at <= coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)))
    OR EXISTS (
        SELECT 1 FROM outbox_hold
        WHERE lane IN :lanes
          AND until <= coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)))

-- name: flying
-- R20: the claims that are still there, locked to the commit; whoever takes the lane over deletes them.
SELECT lane, id, seqs
FROM outbox_claim FORCE INDEX (PRIMARY)
WHERE lane IN :lanes
  AND id IN :ids  -- guard: this claim
ORDER BY lane
FOR UPDATE

-- name: fence
-- Those that `flying` locked, and no others: without the row, nothing of a settle is written. As a join from the list: a
-- plain DELETE takes no hint, and walks along a table as small as this one, where it waits for everybody's claims.
DELETE c
FROM JSON_TABLE(:listed, '$[*]' COLUMNS (lane int PATH '$')) AS l
STRAIGHT_JOIN outbox_claim AS c FORCE INDEX (PRIMARY) ON c.lane = l.lane

-- name: is_mine
-- R21: no claim row, and nobody took the lane since: this settle was carried out before. Else it is lost.
SELECT lane
FROM outbox_lane
WHERE lane = :lane
  AND epoch = :epoch  -- guard: epoch

-- name: publish
UPDATE outbox FORCE INDEX (PRIMARY)
SET outcome = 'published',
    settled_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)),
    tried_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)),
    attempts = attempts + 1,
    shelf = NULL,
    lost = 0,
    last_error_code = NULL,
    last_error = NULL
WHERE seq IN :seqs
  AND settled_at IS NULL  -- guard: open

-- name: expire
UPDATE outbox FORCE INDEX (PRIMARY)
SET outcome = 'expired',
    settled_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)),
    shelf = NULL,
    lost = 0
WHERE seq IN :seqs
  AND settled_at IS NULL  -- guard: open

-- name: bury
UPDATE JSON_TABLE(:verdicts, '$[*]' COLUMNS (
    seq bigint PATH '$.seq',
    code varchar(255) CHARACTER SET utf8mb4 PATH '$.code',
    error varchar(512) CHARACTER SET utf8mb4 PATH '$.error',
    park boolean PATH '$.park')) AS v
STRAIGHT_JOIN outbox AS o ON o.seq = v.seq
SET o.outcome = 'dead',
    o.settled_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)),
    o.tried_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)),
    o.attempts = o.attempts + 1,
    o.shelf = CASE WHEN v.park AND o.`key` IS NOT NULL THEN 'park' END,
    o.lost = 0,
    o.last_error_code = v.code,
    o.last_error = v.error
WHERE true
  AND o.settled_at IS NULL  -- guard: open

-- name: retry
UPDATE JSON_TABLE(:verdicts, '$[*]' COLUMNS (
    seq bigint PATH '$.seq',
    wait bigint PATH '$.wait',
    code varchar(255) CHARACTER SET utf8mb4 PATH '$.code',
    error varchar(512) CHARACTER SET utf8mb4 PATH '$.error',
    spent int PATH '$.spent')) AS v
STRAIGHT_JOIN outbox AS o ON o.seq = v.seq
SET o.attempts = o.attempts + v.spent,
    o.tried_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)),
    o.due_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)) + INTERVAL v.wait MICROSECOND,
    o.shelf = CASE WHEN o.`key` IS NULL THEN 'time' ELSE 'key' END,
    o.lost = o.lost + :lost,
    o.last_error_code = v.code,
    o.last_error = v.error
WHERE true
  AND o.settled_at IS NULL  -- guard: open

-- name: waiting
-- What stands behind each of these keys: until its failed head's next try it waits; with a dead head that parks it, until
-- a person acts. Every change of a key is made under the lock of its lane, so nothing changes before it is written down.
SELECT aside, min(lane), max(shelf = 'park'),
    max(CASE WHEN shelf = 'key' AND tried_at IS NOT NULL THEN due_at END)
FROM outbox
WHERE aside IN :keys
  AND (shelf = 'key' AND settled_at IS NULL OR shelf = 'park' AND outcome = 'dead')
GROUP BY aside

-- name: free_keys
DELETE h
FROM JSON_TABLE(:listed, '$[*]' COLUMNS (name varchar(200) CHARACTER SET utf8mb4 PATH '$')) AS k
STRAIGHT_JOIN outbox_hold AS h FORCE INDEX (PRIMARY) ON h.`key` = k.name

-- name: hold_keys
REPLACE INTO outbox_hold (`key`, lane, until)
VALUES (:key, :lane, :until)

-- name: drop_orphans
-- R22: claims whose answer was lost, in lanes that are mine and locked; nothing of them is held, or settled. Behind the lock:
-- where such a claim's commit was still under way, it has been waited for.
DELETE c
FROM JSON_TABLE(:listed, '$[*]' COLUMNS (lane int PATH '$')) AS l
STRAIGHT_JOIN outbox_claim AS c FORCE INDEX (PRIMARY) ON c.lane = l.lane
