-- name: counts
SELECT status, count(*)
FROM outbox_messages
GROUP BY status

-- name: oldest
-- One part for each index on what is open: together they would read everything that was ever published.
SELECT min(created_at)
FROM (
    SELECT created_at, due_at FROM outbox WHERE settled_at IS NULL AND shelf IS NULL
    UNION ALL
    SELECT created_at, due_at FROM outbox WHERE settled_at IS NULL AND shelf = 'key'
    UNION ALL
    SELECT created_at, due_at FROM outbox WHERE settled_at IS NULL AND shelf = 'time')
WHERE due_at IS NULL
   OR due_at <= :now

-- name: parked
SELECT count(*)
FROM outbox_hold h
JOIN outbox o ON o.key = h.key AND o.settled_at IS NULL
WHERE h.until IS NULL

-- name: find
-- The newest so many, oldest first.
SELECT * FROM (
    SELECT o.seq, m.status, o.attempts, o.lane, o.created_at, coalesce(o.settled_at, o.tried_at, o.created_at),
        m.owner, c.claimed_at, o.due_at, o.settled_at, o.digest, o.last_error_code, o.last_error, m.parked,
        o.id, o.type, o.key, o.aggregate, o.topic, coalesce(CAST(o.payload AS BLOB), o.body), o.content_type, o.headers,
        o.correlation_id, o.causation_id, o.traceparent, o.idempotency_key, o.time, o.expires_at
    FROM outbox o
    JOIN outbox_messages m ON m.seq = o.seq
    LEFT JOIN outbox_claim c ON m.status = 'sending' AND c.lane = o.lane
    WHERE (:ids IS NULL OR o.id IN (SELECT value FROM json_each(:ids)))
      AND (:status IS NULL OR m.status = :status)
      AND (:type IS NULL OR o.type = :type)
      AND (:key IS NULL OR o.key = :key)
      AND (:since IS NULL OR o.created_at >= :since)
      AND (:before IS NULL OR o.seq < :before)
    ORDER BY o.seq DESC
    LIMIT :limit)
ORDER BY 1

-- name: ids_between
SELECT id
FROM outbox
WHERE id BETWEEN :first AND :last
ORDER BY id
LIMIT :limit

-- name: top
SELECT coalesce(max(seq), 0) FROM outbox

-- name: matching
SELECT m.seq, m.key
FROM outbox_messages m
JOIN outbox o ON o.seq = m.seq
WHERE (:ids IS NULL OR m.id IN (SELECT value FROM json_each(:ids)))
  AND (:status IS NULL OR m.status = :status)
  AND (:type IS NULL OR m.type = :type)
  AND (:key IS NULL OR m.key = :key)
  AND (:since IS NULL OR o.created_at >= :since)
  AND m.status IN (SELECT value FROM json_each(:statuses))  -- guard: nothing in flight, nothing of another status
  AND (:before IS NULL OR m.seq < :before)
  AND m.seq > :after AND m.seq <= :top
ORDER BY m.seq
LIMIT :size

-- name: requeue
-- Back to pending, with the same id and place. Behind a hold it waits its turn; its key is looked after next.
UPDATE outbox
SET outcome = NULL,
    settled_at = NULL,
    attempts = 0,
    due_at = NULL,
    lost = 0,
    shelf = CASE WHEN EXISTS (SELECT 1 FROM outbox_hold h WHERE h.key = outbox.key) THEN 'key' END,
    last_error_code = NULL,
    last_error = NULL
WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: discard
UPDATE outbox
SET outcome = 'discarded',
    settled_at = :now,
    shelf = NULL,
    lost = 0
WHERE seq IN (SELECT value FROM json_each(:seqs))
