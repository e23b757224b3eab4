-- name: counts
SELECT status, count(*)
FROM outbox_messages
GROUP BY status

-- name: oldest
-- One part for each index on what is open: together they would read everything that was ever published.
SELECT coalesce(CAST(:now AS timestamptz), clock_timestamp()) - min(created_at)
FROM (
    SELECT created_at, due_at FROM outbox WHERE settled_at IS NULL AND shelf IS NULL
    UNION ALL
    SELECT created_at, due_at FROM outbox WHERE settled_at IS NULL AND shelf = 'key'
    UNION ALL
    SELECT created_at, due_at FROM outbox WHERE settled_at IS NULL AND shelf = 'time') AS open
WHERE due_at IS NULL
   OR due_at <= coalesce(CAST(:now AS timestamptz), clock_timestamp())

-- name: parked
SELECT count(*)
FROM outbox_hold h
JOIN outbox o ON o.key = h.key AND o.settled_at IS NULL
WHERE h.until IS NULL

-- name: find
-- The newest so many, oldest first.
SELECT * FROM (
    SELECT seq, status, attempts, lane, created_at, updated_at,
        owner, locked_at, CASE WHEN due_at BETWEEN '0001-01-02' AND '9999-12-31' THEN due_at END, settled_at,
        digest, last_error_code, last_error, parked,
        id, type, key, aggregate, topic, coalesce(convert_to(payload, 'UTF8'), body), content_type, headers,
        correlation_id, causation_id, traceparent, idempotency_key,
        CASE WHEN time BETWEEN '0001-01-02' AND '9999-12-31' THEN time ELSE created_at END,
        CASE WHEN expires_at BETWEEN '0001-01-02' AND '9999-12-31' THEN expires_at END
    FROM outbox_messages
    WHERE (CAST(:ids AS uuid[]) IS NULL OR id = ANY (CAST(:ids AS uuid[])))
      AND (CAST(:status AS text) IS NULL OR status = CAST(:status AS text))
      AND (CAST(:type AS text) IS NULL OR type = CAST(:type AS text))
      AND (CAST(:key AS text) IS NULL OR key = CAST(:key AS text))
      AND (CAST(:since AS timestamptz) IS NULL OR created_at >= CAST(:since AS timestamptz))
      AND (CAST(:before AS bigint) IS NULL OR seq < CAST(:before AS bigint))
    ORDER BY seq DESC
    LIMIT CAST(:limit AS bigint)) AS newest
ORDER BY seq

-- name: ids_between
SELECT id
FROM outbox
WHERE id BETWEEN CAST(:first AS uuid) AND CAST(:last AS uuid)
ORDER BY id
LIMIT CAST(:limit AS bigint)

-- name: top
SELECT coalesce(max(seq), 0) FROM outbox

-- name: matching
SELECT seq, lane, key
FROM outbox_messages
WHERE (CAST(:ids AS uuid[]) IS NULL OR id = ANY (CAST(:ids AS uuid[])))
  AND (CAST(:status AS text) IS NULL OR status = CAST(:status AS text))
  AND (CAST(:type AS text) IS NULL OR type = CAST(:type AS text))
  AND (CAST(:key AS text) IS NULL OR key = CAST(:key AS text))
  AND (CAST(:since AS timestamptz) IS NULL OR created_at >= CAST(:since AS timestamptz))
  AND status = ANY (CAST(:statuses AS text[]))
  AND (CAST(:before AS bigint) IS NULL OR seq < CAST(:before AS bigint))
  AND seq > :after AND seq <= :top
ORDER BY seq
LIMIT CAST(:size AS bigint)

-- name: still
-- R25, looked at again now that no claim can be made in these lanes.
SELECT seq, key
FROM outbox_messages
WHERE seq = ANY (:seqs)
  AND status = ANY (CAST(:statuses AS text[]))  -- guard: nothing in flight

-- name: lock_lanes
SELECT lane
FROM outbox_lane
WHERE lane = ANY (CAST(:lanes AS integer[]))
ORDER BY lane
FOR UPDATE

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
WHERE seq = ANY (:seqs)

-- name: discard
UPDATE outbox
SET outcome = 'discarded',
    settled_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    shelf = NULL,
    lost = 0
WHERE seq = ANY (:seqs)
