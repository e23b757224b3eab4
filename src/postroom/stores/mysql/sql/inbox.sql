-- name: remember
-- What is known keeps its values. `outcome` comes last: the assignments are made one after the other, and all ask it.
INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at, token)
SELECT :consumer, :source, u.id, 'handled', 1, utc_timestamp(6), :token
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id varchar(36) PATH '$')) AS u
ON DUPLICATE KEY UPDATE
    token = IF(outcome IN ('failing', 'requeued'), :token, token),
    attempts = attempts + IF(outcome IN ('failing', 'requeued') AND NOT last_error_code <=> 'UNFINISHED', 1, 0),
    at = IF(outcome IN ('failing', 'requeued'), utc_timestamp(6), at),
    last_error_code = IF(outcome IN ('failing', 'requeued'), NULL, last_error_code),
    last_error = IF(outcome IN ('failing', 'requeued'), NULL, last_error),
    outcome = IF(outcome IN ('failing', 'requeued'), 'handled', outcome)

-- name: remembered
SELECT message_id FROM inbox WHERE consumer = :consumer AND source = :source AND message_id IN :ids AND token = :token

-- name: unbury
DELETE FROM inbox_dead WHERE consumer = :consumer AND source = :source AND message_id IN :ids

-- name: failed
INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at, last_error_code, last_error)
VALUES (:consumer, :source, :id, 'failing', 1, utc_timestamp(6), :code, :error)
ON DUPLICATE KEY UPDATE
    attempts = attempts + IF(
        outcome IN ('failing', 'requeued') AND (:code = 'UNFINISHED' OR NOT last_error_code <=> 'UNFINISHED'), 1, 0),
    at = IF(outcome IN ('failing', 'requeued'), utc_timestamp(6), at),
    last_error_code = IF(outcome IN ('failing', 'requeued'), :code, last_error_code),
    last_error = IF(outcome IN ('failing', 'requeued'), :error, last_error),
    outcome = IF(outcome IN ('failing', 'requeued'), 'failing', outcome)

-- name: give_up
INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at, last_error_code, last_error)
VALUES (:consumer, :source, :id, 'dead', 0, utc_timestamp(6), :code, :error)
ON DUPLICATE KEY UPDATE
    at = IF(outcome <> 'handled' OR :committed, utc_timestamp(6), at),
    last_error_code = IF(outcome <> 'handled' OR :committed, :code, last_error_code),
    last_error = IF(outcome <> 'handled' OR :committed, :error, last_error),
    outcome = IF(outcome <> 'handled' OR :committed, 'dead', outcome)

-- name: attempts_made
-- After one of the two above, whose lock is still held: did it come to that, and after how many tries?
SELECT attempts FROM inbox WHERE consumer = :consumer AND source = :source AND message_id = :id AND outcome = :outcome

-- name: bury
INSERT INTO inbox_dead
    (consumer, source, message_id, type, `key`, topic, attributes, headers, body, attempts, code, error, dead_at)
VALUES (:consumer, :source, :id, :type, :key, :topic, :attributes, :headers, :body, :attempts, :code, :error, utc_timestamp(6))
ON DUPLICATE KEY UPDATE
    attempts = :attempts, code = :code, error = :error, dead_at = utc_timestamp(6), requeued_at = NULL

-- name: known
SELECT consumer, source, message_id, outcome, attempts, at, last_error_code, last_error
FROM inbox
WHERE (:consumer IS NULL OR consumer = :consumer)
  AND (:any_id OR message_id IN :ids)
  AND (:source IS NULL OR source = :source)
  AND (:outcome IS NULL OR outcome = :outcome)
ORDER BY at DESC, message_id DESC
LIMIT :limit

-- name: dead
SELECT consumer, source, attributes, headers, body, topic, attempts, code, error, dead_at, requeued_at
FROM inbox_dead
WHERE (:consumer IS NULL OR consumer = :consumer)
  AND (:any_id OR message_id IN :ids)
  AND (:type IS NULL OR type = :type)
  AND (:key IS NULL OR `key` = :key)
  AND (:code IS NULL OR code = :code)
  AND (:requeued IS NULL OR :requeued = (requeued_at IS NOT NULL))
ORDER BY id
LIMIT :limit

-- name: to_requeue
SELECT id, consumer, source, message_id
FROM inbox_dead
WHERE requeued_at IS NULL
  AND (:consumer IS NULL OR consumer = :consumer)
  AND (:any_id OR message_id IN :ids)
  AND (:type IS NULL OR type = :type)
  AND (:key IS NULL OR `key` = :key)
  AND (:code IS NULL OR code = :code)
ORDER BY id
FOR UPDATE

-- name: mark_requeued
UPDATE inbox_dead SET requeued_at = utc_timestamp(6) WHERE id IN :rows

-- name: let_go_again
UPDATE inbox SET outcome = 'requeued', attempts = 0, at = utc_timestamp(6)
WHERE outcome = 'dead' AND consumer = :consumer AND source = :source AND message_id = :id

-- name: inbox_counts
SELECT consumer, outcome, count(*) FROM inbox GROUP BY consumer, outcome

-- name: forget
DELETE FROM inbox
WHERE consumer = :consumer AND outcome <> 'dead' AND at < :before
ORDER BY at LIMIT :limit
