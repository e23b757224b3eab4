-- name: remember
INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at)
SELECT :consumer, :source, value, 'handled', 1, :now FROM json_each(:ids) WHERE true
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET outcome = 'handled', attempts = attempts + iif(last_error_code = 'UNFINISHED', 0, 1), at = excluded.at,
    last_error_code = NULL, last_error = NULL
WHERE outcome IN ('failing', 'requeued')
RETURNING message_id

-- name: unbury
DELETE FROM inbox_dead WHERE consumer = :consumer AND source = :source AND message_id IN (SELECT value FROM json_each(:ids))

-- name: failed
INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at, last_error_code, last_error)
VALUES (:consumer, :source, :id, 'failing', 1, :now, :code, :error)
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET outcome = 'failing', at = excluded.at,
    attempts = attempts + iif(last_error_code = 'UNFINISHED' AND excluded.last_error_code <> 'UNFINISHED', 0, 1),
    last_error_code = excluded.last_error_code, last_error = excluded.last_error
WHERE outcome IN ('failing', 'requeued')
RETURNING attempts

-- name: give_up
INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at, last_error_code, last_error)
VALUES (:consumer, :source, :id, 'dead', 0, :now, :code, :error)
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET outcome = 'dead', at = excluded.at, last_error_code = excluded.last_error_code, last_error = excluded.last_error
WHERE outcome <> 'handled' OR :committed
RETURNING attempts

-- name: bury
INSERT INTO inbox_dead
    (consumer, source, message_id, type, key, topic, attributes, headers, body, attempts, code, error, dead_at)
VALUES (:consumer, :source, :id, :type, :key, :topic, :attributes, :headers, :body, :attempts, :code, :error, :now)
ON CONFLICT (consumer, message_id, source) DO UPDATE
SET attempts = excluded.attempts, code = excluded.code, error = excluded.error, dead_at = excluded.dead_at,
    requeued_at = NULL

-- name: known
SELECT consumer, source, message_id, outcome, attempts, at, last_error_code, last_error
FROM inbox
WHERE (:consumer IS NULL OR consumer = :consumer)
  AND (:ids IS NULL OR message_id IN (SELECT value FROM json_each(:ids)))
  AND (:source IS NULL OR source = :source)
  AND (:outcome IS NULL OR outcome = :outcome)
ORDER BY at DESC, message_id DESC
LIMIT :limit

-- name: dead
SELECT consumer, source, attributes, headers, body, topic, attempts, code, error, dead_at, requeued_at
FROM inbox_dead
WHERE (:consumer IS NULL OR consumer = :consumer)
  AND (:ids IS NULL OR message_id IN (SELECT value FROM json_each(:ids)))
  AND (:type IS NULL OR type = :type)
  AND (:key IS NULL OR key = :key)
  AND (:code IS NULL OR code = :code)
  AND (:requeued IS NULL OR :requeued = (requeued_at IS NOT NULL))
ORDER BY id
LIMIT :limit

-- name: requeue
UPDATE inbox_dead SET requeued_at = :now
WHERE requeued_at IS NULL
  AND (:consumer IS NULL OR consumer = :consumer)
  AND (:ids IS NULL OR message_id IN (SELECT value FROM json_each(:ids)))
  AND (:type IS NULL OR type = :type)
  AND (:key IS NULL OR key = :key)
  AND (:code IS NULL OR code = :code)
RETURNING consumer, source, message_id

-- name: let_go_again
UPDATE inbox SET outcome = 'requeued', attempts = 0, at = :now
WHERE outcome = 'dead' AND consumer = :consumer AND source = :source AND message_id = :id

-- name: inbox_counts
SELECT consumer, outcome, count(*) FROM inbox GROUP BY consumer, outcome

-- name: forget
DELETE FROM inbox
WHERE (consumer, message_id, source) IN (
    SELECT consumer, message_id, source FROM inbox
    WHERE consumer = :consumer AND outcome <> 'dead' AND at < :before ORDER BY at LIMIT :limit)
