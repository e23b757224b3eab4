-- name: remember
INSERT INTO inbox AS known (consumer, source, message_id, outcome, attempts, at)
SELECT :consumer, :source, u.id, 'handled', 1, clock_timestamp()
FROM unnest(CAST(:ids AS uuid[])) AS u (id)
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET outcome = 'handled', attempts = known.attempts + CASE known.last_error_code WHEN 'UNFINISHED' THEN 0 ELSE 1 END,
    at = excluded.at, last_error_code = NULL, last_error = NULL
WHERE known.outcome IN ('failing', 'requeued')
RETURNING message_id

-- name: unbury
DELETE FROM inbox_dead WHERE consumer = :consumer AND source = :source AND message_id = ANY (CAST(:ids AS uuid[]))

-- name: failed
INSERT INTO inbox AS known (consumer, source, message_id, outcome, attempts, at, last_error_code, last_error)
VALUES (:consumer, :source, :id, 'failing', 1, clock_timestamp(), :code, :error)
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET outcome = 'failing', at = excluded.at,
    attempts = known.attempts + CASE WHEN known.last_error_code = 'UNFINISHED'
                                      AND excluded.last_error_code <> 'UNFINISHED' THEN 0 ELSE 1 END,
    last_error_code = excluded.last_error_code, last_error = excluded.last_error
WHERE known.outcome IN ('failing', 'requeued')
RETURNING attempts

-- name: give_up
INSERT INTO inbox AS known (consumer, source, message_id, outcome, attempts, at, last_error_code, last_error)
VALUES (:consumer, :source, :id, 'dead', 0, clock_timestamp(), :code, :error)
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET outcome = 'dead', at = excluded.at, last_error_code = excluded.last_error_code, last_error = excluded.last_error
WHERE known.outcome <> 'handled' OR CAST(:committed AS boolean)
RETURNING attempts

-- name: bury
INSERT INTO inbox_dead
    (consumer, source, message_id, type, key, topic, attributes, headers, body, attempts, code, error, dead_at)
VALUES (:consumer, :source, :id, :type, :key, :topic, :attributes, :headers, :body, :attempts, :code, :error, clock_timestamp())
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET attempts = excluded.attempts, code = excluded.code, error = excluded.error, dead_at = excluded.dead_at,
    requeued_at = NULL

-- name: known
SELECT consumer, source, message_id, outcome, attempts, at, last_error_code, last_error
FROM inbox
WHERE (CAST(:consumer AS text) IS NULL OR consumer = :consumer)
  AND (CAST(:ids AS uuid[]) IS NULL OR message_id = ANY (CAST(:ids AS uuid[])))
  AND (CAST(:source AS text) IS NULL OR source = :source)
  AND (CAST(:outcome AS text) IS NULL OR outcome = :outcome)
ORDER BY at DESC, message_id DESC
LIMIT CAST(:limit AS bigint)

-- name: dead
SELECT consumer, source, attributes, headers, body, topic, attempts, code, error, dead_at, requeued_at
FROM inbox_dead
WHERE (CAST(:consumer AS text) IS NULL OR consumer = :consumer)
  AND (CAST(:ids AS uuid[]) IS NULL OR message_id = ANY (CAST(:ids AS uuid[])))
  AND (CAST(:type AS text) IS NULL OR type = :type)
  AND (CAST(:key AS text) IS NULL OR key = :key)
  AND (CAST(:code AS text) IS NULL OR code = :code)
  AND (CAST(:requeued AS boolean) IS NULL OR :requeued = (requeued_at IS NOT NULL))
ORDER BY id
LIMIT CAST(:limit AS bigint)

-- name: requeue
UPDATE inbox_dead SET requeued_at = clock_timestamp()
WHERE requeued_at IS NULL
  AND (CAST(:consumer AS text) IS NULL OR consumer = :consumer)
  AND (CAST(:ids AS uuid[]) IS NULL OR message_id = ANY (CAST(:ids AS uuid[])))
  AND (CAST(:type AS text) IS NULL OR type = :type)
  AND (CAST(:key AS text) IS NULL OR key = :key)
  AND (CAST(:code AS text) IS NULL OR code = :code)
RETURNING consumer, source, message_id

-- name: let_go_again
UPDATE inbox SET outcome = 'requeued', attempts = 0, at = clock_timestamp()
WHERE outcome = 'dead' AND consumer = :consumer AND source = :source AND message_id = :id

-- name: inbox_counts
SELECT consumer, outcome, count(*) FROM inbox GROUP BY consumer, outcome

-- name: forget
DELETE FROM inbox
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM inbox WHERE consumer = :consumer AND outcome <> 'dead' AND at < :before LIMIT :limit))
