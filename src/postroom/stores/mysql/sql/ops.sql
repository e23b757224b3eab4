-- name: counts
SELECT status, count(*)
FROM outbox_messages
GROUP BY status

-- name: oldest
-- One part for each index on what is open: together they would read everything that was ever published.
SELECT min(created_at), coalesce(CAST(:now AS datetime(6)), utc_timestamp(6))
FROM (
    SELECT created_at, due_at FROM outbox WHERE in_line IS NOT NULL
    UNION ALL
    SELECT created_at, due_at FROM outbox WHERE aside IS NOT NULL AND shelf = 'key' AND settled_at IS NULL
    UNION ALL
    SELECT created_at, due_at FROM outbox WHERE later IS NOT NULL) AS waiting
WHERE due_at IS NULL
   OR due_at <= coalesce(CAST(:now AS datetime(6)), utc_timestamp(6))

-- name: parked
SELECT count(*)
FROM outbox_hold h
JOIN (
    SELECT `key` FROM outbox WHERE in_line IS NOT NULL
    UNION ALL
    SELECT `key` FROM outbox WHERE aside IS NOT NULL AND shelf = 'key' AND settled_at IS NULL
    UNION ALL
    SELECT `key` FROM outbox WHERE later IS NOT NULL) AS o ON o.`key` = h.`key`
WHERE h.until IS NULL

-- name: find
-- The newest so many, oldest first.
SELECT * FROM (
    SELECT seq, status, attempts, lane, created_at, updated_at,
        owner, locked_at, due_at, settled_at, digest, last_error_code, last_error, parked,
        id, type, `key`, aggregate, topic, coalesce(CAST(payload AS binary), body), content_type, headers,
        correlation_id, causation_id, traceparent, idempotency_key,
        CASE WHEN time >= '0001-01-01' THEN time ELSE created_at END,
        CASE WHEN expires_at >= '0001-01-01' THEN expires_at END
    FROM outbox_messages
    WHERE (:any_id OR id IN :ids)
      AND (:status IS NULL OR status = :status)
      AND (:type IS NULL OR type = :type)
      AND (:key IS NULL OR `key` = :key)
      AND (:since IS NULL OR created_at >= :since)
      AND (:before IS NULL OR seq < :before)
    ORDER BY seq DESC
    LIMIT :limit) AS newest
ORDER BY seq

-- name: ids_between
SELECT id
FROM outbox
WHERE id BETWEEN :first AND :last
ORDER BY id
LIMIT :limit

-- name: top
SELECT coalesce(max(seq), 0) FROM outbox

-- name: matching
SELECT seq, lane, `key`
FROM outbox_messages
WHERE (:any_id OR id IN :ids)
  AND (:status IS NULL OR status = :status)
  AND (:type IS NULL OR type = :type)
  AND (:key IS NULL OR `key` = :key)
  AND (:since IS NULL OR created_at >= :since)
  AND status IN :statuses
  AND (:before IS NULL OR seq < :before)
  AND seq > :after AND seq <= :top
ORDER BY seq
LIMIT :size

-- name: still
-- R25, looked at again now that no claim can be made in these lanes.
SELECT seq, `key`
FROM outbox_messages
WHERE seq IN :seqs
  AND status IN :statuses  -- guard: nothing in flight

-- name: lock_lanes
SELECT lane
FROM outbox_lane FORCE INDEX (PRIMARY)
WHERE lane IN :lanes
ORDER BY lane
FOR UPDATE

-- name: requeue
-- Back to pending, with the same id and place. Behind a hold it waits its turn; its key is looked after next.
UPDATE outbox FORCE INDEX (PRIMARY)
SET outcome = NULL,
    settled_at = NULL,
    attempts = 0,
    due_at = NULL,
    lost = 0,
    shelf = CASE WHEN EXISTS (SELECT 1 FROM outbox_hold h WHERE h.`key` = outbox.`key`) THEN 'key' END,
    last_error_code = NULL,
    last_error = NULL
WHERE seq IN :seqs

-- name: discard
UPDATE outbox FORCE INDEX (PRIMARY)
SET outcome = 'discarded',
    settled_at = coalesce(CAST(:now AS datetime(6)), utc_timestamp(6)),
    shelf = NULL,
    lost = 0
WHERE seq IN :seqs
