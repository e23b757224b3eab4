-- name: lock_mine
-- R11: mine, at this epoch; locked to the commit, so that neither a take nor another claim of mine comes between (a
-- share lock would let the latter). In order, as renew and release do. The claim's commit also makes everything it read
-- durable, whatever the session's setting: what is sent must not be forgotten. And it looks everything up by an index:
-- a plan made, and kept, while hardly a key was on hold would read all of them once per message later.
-- A relay that freezes in here (as the first statement of any of its transactions says) lets go when the server ends it:
-- its locks must not outlive its lease.
SELECT l.lane, l.epoch, coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    set_config('synchronous_commit', 'on', true), set_config('enable_seqscan', 'off', true),
    set_config('idle_in_transaction_session_timeout', '5s', true)
FROM outbox_lane l
JOIN unnest(CAST(:lanes AS integer[]), CAST(:epochs AS bigint[])) AS held (lane, epoch) ON held.lane = l.lane
WHERE l.owner = :owner  -- guard: owner
  AND l.epoch = held.epoch  -- guard: epoch
ORDER BY l.lane
FOR NO KEY UPDATE OF l

-- name: lift_due
-- What is due now goes back in the line. The lowest seqs first: see `ceiling` in the code.
WITH due AS MATERIALIZED (
    SELECT o.seq
    FROM unnest(CAST(:lanes AS integer[])) AS l (lane)
    CROSS JOIN LATERAL (
        SELECT seq FROM outbox
        WHERE settled_at IS NULL AND shelf = 'time'
          AND lane = l.lane
          AND due_at <= :now
        ORDER BY seq
        LIMIT :want) AS o)
UPDATE outbox
SET shelf = NULL
WHERE seq = ANY (ARRAY(SELECT seq FROM due))
RETURNING lane, seq

-- name: line
-- The common case: no key of these lanes waits. What stands first in their lines is read whole, in one pass and one
-- snapshot, and claimed by `claim_line` in this transaction: the lanes are locked, so nobody comes between. A lane where
-- more has to be thought of (a key waits, or a message is not like the others: `odd`) is left to `walk_past`; it says so in a row
-- of its own, as a lane does that has nothing.
WITH later AS NOT MATERIALIZED (
    SELECT lane, due_at FROM outbox WHERE settled_at IS NULL AND shelf = 'time'
)
SELECT l.lane, l.plain, o.*
FROM (
    SELECT u.lane,
        true
        AND NOT EXISTS (SELECT 1 FROM outbox_hold h WHERE h.lane = u.lane OFFSET 0)  -- guard: no key waits
        AND NOT EXISTS (SELECT 1 FROM later d WHERE d.lane = u.lane AND d.due_at <= :now OFFSET 0)  -- guard: nothing became due
        AS plain
    FROM unnest(CAST(:lanes AS integer[])) AS u (lane)
    WHERE true
      AND NOT EXISTS (SELECT 1 FROM outbox_claim c WHERE c.lane = u.lane)  -- guard: nothing in flight
    OFFSET 0) AS l
LEFT JOIN LATERAL (
    SELECT
        false
        OR lost > 0  -- guard: nobody who was lost
        OR coalesce(due_at > :now, false)  -- guard: nothing before its time
        AS odd,
        seq, attempts, coalesce(expires_at <= :now, false),
        CAST(id AS text), type, key, aggregate, topic, coalesce(convert_to(payload, 'UTF8'), body), content_type, headers,
        correlation_id, causation_id, traceparent, idempotency_key,
        to_char(
            CASE WHEN time BETWEEN '0001-01-02' AND '9999-12-31' THEN time ELSE created_at END AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        CASE WHEN expires_at BETWEEN '0001-01-02' AND '9999-12-31' THEN expires_at END
    FROM outbox
    WHERE settled_at IS NULL AND shelf IS NULL
      AND lane = l.lane
      AND l.plain
    ORDER BY seq
    LIMIT :want) AS o ON true

-- name: walk_past
-- Lanes where keys wait, but no wait is over: along the line, past the messages of those keys, to what may go; and how far
-- that was. The rows are narrow, since most of them may be only walked past; `claimed` reads the others. A lane that is not
-- plain by this either is left to `claim`.
WITH later AS NOT MATERIALIZED (
    SELECT lane, due_at FROM outbox WHERE settled_at IS NULL AND shelf = 'time'
)
SELECT l.lane, l.plain, o.*
FROM (
    SELECT u.lane,
        true
        AND NOT EXISTS (SELECT 1 FROM outbox_hold h WHERE h.lane = u.lane AND h.until <= :now OFFSET 0)  -- guard: no wait is over
        AND NOT EXISTS (SELECT 1 FROM later d WHERE d.lane = u.lane AND d.due_at <= :now OFFSET 0)  -- guard: nothing became due
        AS plain
    FROM unnest(CAST(:lanes AS integer[])) AS u (lane)
    OFFSET 0) AS l
LEFT JOIN LATERAL (
    SELECT odd, seq, walked
    FROM (
        SELECT seq, key, row_number() OVER (ORDER BY seq) AS walked,
            false
            OR lost > 0  -- guard: nobody who was lost
            OR coalesce(due_at > :now, false)  -- guard: nothing before its time
            AS odd
        FROM outbox
        WHERE settled_at IS NULL AND shelf IS NULL
          AND lane = l.lane
          AND l.plain
        ORDER BY seq
        LIMIT :reach) AS seen
    WHERE true
      AND NOT EXISTS (SELECT 1 FROM outbox_hold h WHERE h.key = seen.key OFFSET 0)  -- guard: nothing of a waiting key
    ORDER BY seq
    LIMIT :want) AS o ON true

-- name: claimed
SELECT lane, seq, attempts, coalesce(expires_at <= :now, false),
        CAST(id AS text), type, key, aggregate, topic, coalesce(convert_to(payload, 'UTF8'), body), content_type, headers,
        correlation_id, causation_id, traceparent, idempotency_key,
        to_char(
            CASE WHEN time BETWEEN '0001-01-02' AND '9999-12-31' THEN time ELSE created_at END AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        CASE WHEN expires_at BETWEEN '0001-01-02' AND '9999-12-31' THEN expires_at END
FROM outbox
WHERE seq = ANY (:seqs)

-- name: claim_line
INSERT INTO outbox_claim (lane, epoch, owner, seqs, claimed_at, alone)
SELECT c.lane, c.epoch, :owner, CAST(c.seqs AS bigint[]), :now, CAST(:alone AS boolean)
FROM unnest(CAST(:lanes AS integer[]), CAST(:epochs AS bigint[]), CAST(:seqs AS text[])) AS c (lane, epoch, seqs)
RETURNING lane, id

-- name: shelve_held
-- What stands first in the line and is of a waiting key goes out of it: it was walked past, and would be again and again.
UPDATE outbox
SET shelf = 'key'
WHERE ctid = ANY (ARRAY(
    SELECT o.place_on_disk
    FROM unnest(CAST(:lanes AS integer[])) AS l (lane)
    CROSS JOIN LATERAL (
        SELECT ctid AS place_on_disk, key FROM outbox
        WHERE settled_at IS NULL AND shelf IS NULL
          AND lane = l.lane
        ORDER BY seq
        LIMIT :reach) AS o
    WHERE EXISTS (
        SELECT 1 FROM outbox_hold h
        WHERE h.key = o.key AND (h.until IS NULL OR h.until > :now) OFFSET 0)))

-- name: claim
-- One look, one snapshot: the line of each lane from its very start (openness decides, never a position: R15), and what
-- waited behind keys whose time has come. What has to wait is taken out of the line, so that nobody walks past it again;
-- what may go is claimed, the first of every lane before the second of any. OFFSET 0 keeps a look-up a look-up: as a join
-- the planner may read all that is on hold for each lane.
WITH
-- Looked at only now that the lanes are locked: an earlier snapshot might not show the claim just committed.
free AS MATERIALIZED (
    SELECT l.lane, l.epoch
    FROM unnest(CAST(:lanes AS integer[]), CAST(:epochs AS bigint[])) AS l (lane, epoch)
    WHERE true
      AND NOT EXISTS (SELECT 1 FROM outbox_claim c WHERE c.lane = l.lane)  -- guard: nothing in flight
),
holds AS MATERIALIZED (
    SELECT EXISTS (SELECT 1 FROM outbox_hold WHERE lane = ANY (CAST(:lanes AS integer[]))) AS any_held
),
line AS MATERIALIZED (
    SELECT l.lane, l.epoch, o.seq, o.place_on_disk, o.key, o.lost, o.tried, o.early,
        (SELECT any_held FROM holds) AND EXISTS (SELECT 1 FROM outbox_hold h WHERE h.key = o.key OFFSET 0) AS held
    FROM free l
    CROSS JOIN LATERAL (
        SELECT seq, ctid AS place_on_disk, key, lost, tried_at IS NOT NULL AS tried, coalesce(due_at > :now, false) AS early
        FROM outbox
        WHERE settled_at IS NULL AND shelf IS NULL
          AND lane = l.lane
        ORDER BY seq
        LIMIT :reach) AS o
),
freed AS MATERIALIZED (
    SELECT h.key, l.lane, l.epoch
    FROM free l
    JOIN outbox_hold h ON h.lane = l.lane
    WHERE true
      AND h.until <= :now  -- guard: the wait is over
    ORDER BY h.until
    LIMIT :limit
),
behind AS MATERIALIZED (
    SELECT f.lane, f.epoch, o.seq, o.place_on_disk, o.key, o.lost, o.tried, o.early
    FROM freed f
    CROSS JOIN LATERAL (
        SELECT seq, ctid AS place_on_disk, key, lost, tried_at IS NOT NULL AS tried, coalesce(due_at > :now, false) AS early
        FROM outbox
        WHERE settled_at IS NULL AND shelf = 'key'
          AND key = f.key
        ORDER BY seq
        LIMIT :want) AS o
),
-- A freed key goes on with what stands in the line only where all that stood behind it is in sight.
in_sight AS MATERIALIZED (
    SELECT key FROM freed
    EXCEPT
    SELECT key FROM behind GROUP BY key HAVING count(*) >= :want
),
of_freed AS MATERIALIZED (
    SELECT lane, epoch, seq, place_on_disk, key, lost, early, shelved,
        -- A message in backoff stops the rest of its key.
        bool_or(tried AND early) OVER (PARTITION BY key ORDER BY seq) AS stopped
    FROM (
        SELECT lane, epoch, seq, place_on_disk, key, lost, tried, early, true AS shelved FROM behind
        UNION ALL
        SELECT lane, epoch, seq, place_on_disk, key, lost, tried, early, false FROM line WHERE held AND key IN (SELECT key FROM in_sight)
    ) AS both_sides
),
-- R14: a window full of messages that have to wait says nothing of those behind it. They are put aside in this look, and
-- the lane is looked at again.
crowded AS MATERIALIZED (
    SELECT lane
    FROM line
    GROUP BY lane
    HAVING count(*) >= :reach
       AND bool_or(held OR early)
       AND count(*) FILTER (WHERE NOT held AND NOT early) < :want
),
ready AS (
    SELECT lane, epoch, seq, place_on_disk, lost, false AS held FROM line WHERE NOT held AND NOT early
    UNION ALL
    SELECT lane, epoch, seq, place_on_disk, lost, true FROM of_freed WHERE NOT stopped AND NOT early
),
ranked AS (
    SELECT r.lane, r.epoch, r.seq, r.place_on_disk, r.lost, r.held,
        row_number() OVER lane_line AS place,
        count(*) FILTER (WHERE r.lost > 0) OVER lane_line AS suspects,
        count(*) FILTER (WHERE r.lost = 0) OVER lane_line AS innocents,
        max(r.lost) OVER lane_line AS worst
    FROM ready r
    WHERE r.seq <= coalesce((CAST(:ceilings AS bigint[]))[array_position(CAST(:capped AS integer[]), r.lane)], r.seq)
    WINDOW lane_line AS (PARTITION BY r.lane ORDER BY r.seq)
),
chosen AS MATERIALIZED (
    SELECT lane, epoch, seq, place_on_disk, lost, held
    FROM ranked
    WHERE place <= :want
      -- R8: who was lost in a crash travels with its like only, and alone from the second time on.
      AND (suspects = 0 OR (innocents = 0 AND (worst < 2 OR place = 1)))
      AND lane NOT IN (SELECT lane FROM crowded)
    ORDER BY place, lane
    LIMIT :limit
),
claims AS (
    INSERT INTO outbox_claim (lane, epoch, owner, seqs, claimed_at, alone)
    SELECT lane, epoch, :owner, array_agg(seq ORDER BY seq), :now, CAST(:alone AS boolean)
    FROM chosen
    GROUP BY lane, epoch
    RETURNING id, lane
),
aside AS MATERIALIZED (
    SELECT seq, CASE WHEN held THEN 'key' ELSE 'time' END AS shelf
    FROM line
    WHERE (held OR early) AND seq NOT IN (SELECT seq FROM chosen)
    UNION ALL
    SELECT seq, 'time' FROM of_freed WHERE shelved AND early AND NOT stopped
),
shelved AS (
    UPDATE outbox o
    SET shelf = aside.shelf
    FROM aside
    WHERE o.seq = aside.seq
    RETURNING 1
)
-- The claim's id by its lane, out of two arrays: as a join, which the planner takes for one of a row with a row, every
-- message would be compared with every claim.
SELECT seen.moved,
    -- Once is enough: with every message, the keys would be a list as long as the batch, as often as the batch is long.
    CASE WHEN ch.seq IS NOT DISTINCT FROM (SELECT min(seq) FROM chosen) THEN seen.freed END,
    (ARRAY(SELECT id FROM claims ORDER BY lane))[array_position(ARRAY(SELECT lane FROM claims ORDER BY lane), ch.lane)],
    ch.lane, ch.epoch, ch.lost, ch.held, o.*
FROM (SELECT (SELECT count(*) FROM shelved) AS moved, nullif(ARRAY(SELECT key FROM freed), '{}') AS freed) AS seen
LEFT JOIN chosen ch ON true
LEFT JOIN LATERAL (
    SELECT seq, attempts, coalesce(expires_at <= :now, false) AS expired,
        CAST(id AS text), type, key, aggregate, topic, coalesce(convert_to(payload, 'UTF8'), body), content_type, headers,
        correlation_id, causation_id, traceparent, idempotency_key,
        -- A stranger may have written a time that no client can hold.
        to_char(
            CASE WHEN time BETWEEN '0001-01-02' AND '9999-12-31' THEN time ELSE created_at END AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        CASE WHEN expires_at BETWEEN '0001-01-02' AND '9999-12-31' THEN expires_at END
    FROM outbox
    -- Where it stands on the disk, in this very snapshot: there is no quicker way to a row.
    WHERE ctid = ch.place_on_disk
    OFFSET 0) AS o ON true

-- name: peek
SELECT EXISTS (
        SELECT 1 FROM unnest(CAST(:lanes AS integer[])) AS l (lane)
        CROSS JOIN LATERAL (
            SELECT 1 FROM outbox WHERE settled_at IS NULL AND shelf IS NULL AND lane = l.lane LIMIT 1) AS o)
    OR EXISTS (
        SELECT 1 FROM outbox
        WHERE settled_at IS NULL AND shelf = 'time'
          AND lane = ANY (CAST(:lanes AS integer[]))
          AND due_at <= coalesce(CAST(:now AS timestamptz), clock_timestamp()))
    OR EXISTS (
        SELECT 1 FROM outbox_hold
        WHERE lane = ANY (CAST(:lanes AS integer[]))
          AND until <= coalesce(CAST(:now AS timestamptz), clock_timestamp()))

-- name: fence
-- R20: whoever takes the lane over deletes the claim. Without it, nothing of this settle is written. Of a claim that was
-- published whole, the row itself names the messages: nothing need be said of each.
WITH mine AS (
    DELETE FROM outbox_claim
    WHERE id = ANY (:ids)  -- guard: this claim
    RETURNING id, seqs),
published AS (
    UPDATE outbox
    SET outcome = 'published',
        settled_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
        tried_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
        attempts = attempts + 1,
        shelf = NULL,
        lost = 0,
        last_error_code = NULL,
        last_error = NULL
    WHERE seq = ANY (ARRAY(SELECT unnest(seqs) FROM mine WHERE id = ANY (CAST(:whole AS bigint[]))))
      AND settled_at IS NULL  -- guard: open
)
SELECT id FROM mine CROSS JOIN set_config('idle_in_transaction_session_timeout', '5s', true)

-- name: is_mine
-- R21: no claim row, and nobody took the lane since: this settle was carried out before. Else it is lost.
SELECT lane
FROM outbox_lane
WHERE lane = :lane
  AND epoch = :epoch  -- guard: epoch

-- name: publish
UPDATE outbox
SET outcome = 'published',
    settled_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    tried_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    attempts = attempts + 1,
    shelf = NULL,
    lost = 0,
    last_error_code = NULL,
    last_error = NULL
WHERE seq = ANY (:seqs)
  AND settled_at IS NULL  -- guard: open

-- name: expire
UPDATE outbox
SET outcome = 'expired',
    settled_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    shelf = NULL,
    lost = 0
WHERE seq = ANY (:seqs)
  AND settled_at IS NULL  -- guard: open

-- name: bury
UPDATE outbox o
SET outcome = 'dead',
    settled_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    tried_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    attempts = attempts + 1,
    shelf = CASE WHEN v.park AND o.key IS NOT NULL THEN 'park' END,
    lost = 0,
    last_error_code = v.code,
    last_error = v.error
FROM json_to_recordset(CAST(:verdicts AS json)) AS v (seq bigint, code text, error text, park boolean)
WHERE o.seq = v.seq
  AND o.settled_at IS NULL  -- guard: open

-- name: retry
UPDATE outbox o
SET attempts = attempts + v.spent,
    tried_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()),
    due_at = coalesce(CAST(:now AS timestamptz), clock_timestamp()) + make_interval(secs => v.after),
    shelf = CASE WHEN o.key IS NULL THEN 'time' ELSE 'key' END,
    lost = lost + :lost,
    last_error_code = v.code,
    last_error = v.error
FROM json_to_recordset(CAST(:verdicts AS json)) AS v (seq bigint, after double precision, code text, error text, spent integer)
WHERE o.seq = v.seq
  AND o.settled_at IS NULL  -- guard: open

-- name: free_keys
-- A hold with nothing behind it and no dead head is over.
DELETE FROM outbox_hold h
WHERE key = ANY (:keys)
  AND NOT EXISTS (
      SELECT 1 FROM outbox o WHERE o.key = h.key AND o.settled_at IS NULL AND o.shelf = 'key' OFFSET 0)
  AND NOT EXISTS (
      SELECT 1 FROM outbox o WHERE o.key = h.key AND o.outcome = 'dead' AND o.shelf = 'park' OFFSET 0)

-- name: hold_keys
-- A key waits until its failed head's next try; with a dead head that parks it, until a person acts.
INSERT INTO outbox_hold (key, lane, until)
SELECT k.key, min(s.lane),
    CASE WHEN bool_or(s.dead) THEN NULL ELSE coalesce(max(s.due_at), '-infinity') END
FROM unnest(CAST(:keys AS text[])) AS k (key)
CROSS JOIN LATERAL (
    SELECT lane, false AS dead, CASE WHEN tried_at IS NOT NULL THEN due_at END AS due_at
    FROM outbox o
    WHERE o.key = k.key AND o.settled_at IS NULL AND o.shelf = 'key'
    UNION ALL
    SELECT lane, true, NULL
    FROM outbox o
    WHERE o.key = k.key AND o.outcome = 'dead' AND o.shelf = 'park') AS s
GROUP BY k.key
ON CONFLICT (key) DO UPDATE SET until = excluded.until

-- name: drop_orphans
-- R22: claims whose answer was lost, in lanes that are mine and locked; nothing of them is held, or settled. Behind the lock:
-- where such a claim's commit was still under way, it has been waited for.
DELETE FROM outbox_claim
WHERE lane = ANY (:lanes)
