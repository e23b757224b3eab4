-- The first tables of Postroom on SQLite. Times are microseconds since 1970, in UTC; the view shows them as text.

-- One row per message, kept after publishing until retention takes it. A stranger's INSERT need name only type, key and
-- payload: everything else has a default.
CREATE TABLE outbox (
    -- The order of writing. AUTOINCREMENT: a number is never used again, also after a purge.
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    -- UUIDv7: milliseconds, then random bits.
    id               TEXT NOT NULL UNIQUE DEFAULT (
                         lower(substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 1, 8)
                         || '-' || substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 9, 4)
                         || '-7' || substr(hex(randomblob(2)), 2)
                         || '-' || substr('89ab', 1 + (abs(random()) % 4), 1) || substr(hex(randomblob(2)), 2)
                         || '-' || hex(randomblob(6)))),
    -- CRC-32 of the key (of the id, without one). SQLite has no hash of its own: a row that a stranger wrote is born
    -- without it, and gets it in the first claim, before anything is looked at.
    hash             INTEGER,
    lane             INTEGER GENERATED ALWAYS AS (hash % 64 /* lanes */) VIRTUAL,
    type             TEXT NOT NULL CHECK (type <> ''),
    key              TEXT,
    aggregate        TEXT,
    topic            TEXT,
    payload          TEXT,
    body             BLOB,
    content_type     TEXT NOT NULL DEFAULT 'application/json',
    headers          TEXT,
    correlation_id   TEXT,
    causation_id     TEXT,
    traceparent      TEXT,
    idempotency_key  TEXT,
    digest           TEXT,
    time             INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
    expires_at       INTEGER,
    created_at       INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
    attempts         INTEGER NOT NULL DEFAULT 0,
    due_at           INTEGER,
    -- Why an open message is out of the line: 'key', behind its key's held head; 'time', not due yet. On a dead one,
    -- 'park': it holds its key.
    shelf            TEXT,
    -- How often it was in flight when a relay died or lost its lease. Such a one travels with its like, then alone.
    lost             INTEGER NOT NULL DEFAULT 0,
    tried_at         INTEGER,
    settled_at       INTEGER,
    outcome          TEXT, -- published, dead, expired, discarded
    last_error_code  TEXT,
    last_error       TEXT,
    CHECK ((settled_at IS NULL) = (outcome IS NULL)),
    CHECK (payload IS NULL OR body IS NULL)
) STRICT;

-- The line: what is open and may go. The only index that the hot path reads.
CREATE INDEX outbox_line ON outbox (lane, seq) WHERE settled_at IS NULL AND shelf IS NULL;
-- What is out of the way of the line: behind a held key, or the dead message that parks it.
CREATE INDEX outbox_aside ON outbox (key, seq) WHERE shelf IS NOT NULL;
-- What waits for its time.
CREATE INDEX outbox_later ON outbox (lane, due_at) WHERE settled_at IS NULL AND shelf = 'time';
-- Written by a stranger, not hashed yet.
CREATE INDEX outbox_unhashed ON outbox (seq) WHERE hash IS NULL;
CREATE UNIQUE INDEX outbox_idempotency ON outbox (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Who may send which slice of the keys. The epoch only grows.
CREATE TABLE outbox_lane (
    lane         INTEGER PRIMARY KEY,
    owner        TEXT,
    epoch        INTEGER NOT NULL DEFAULT 0,
    lease_until  INTEGER,
    CHECK ((owner IS NULL) = (lease_until IS NULL))
) STRICT;
INSERT INTO outbox_lane (lane)
WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < 64 /* lanes */)
SELECT n FROM number;

-- What is in flight: at most one claim per lane, under an id that is never used again.
CREATE TABLE outbox_claim (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    lane        INTEGER NOT NULL UNIQUE,
    epoch       INTEGER NOT NULL,
    owner       TEXT NOT NULL,
    seqs        TEXT NOT NULL,
    claimed_at  INTEGER NOT NULL,
    -- Nothing else was in flight in that relay's process.
    alone       INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Keys whose head waits for its next try, or is dead and parks them (until is NULL).
CREATE TABLE outbox_hold (
    key    TEXT PRIMARY KEY,
    lane   INTEGER NOT NULL,
    until  INTEGER
) STRICT;
CREATE INDEX outbox_hold_due ON outbox_hold (lane, until);

-- Relays that say they are alive.
CREATE TABLE outbox_relay (
    owner    TEXT PRIMARY KEY,
    name     TEXT NOT NULL,
    host     TEXT NOT NULL,
    pid      INTEGER NOT NULL,
    version  TEXT NOT NULL,
    process  TEXT NOT NULL,
    seen_at  INTEGER NOT NULL
) STRICT;

-- What a person queries.
CREATE VIEW outbox_messages AS
SELECT
    o.seq, o.id, o.type, o.key, o.aggregate, o.topic,
    CASE
        WHEN o.outcome IS NOT NULL THEN o.outcome
        WHEN c.id IS NOT NULL THEN 'sending'
        WHEN o.attempts > 0 THEN 'failed'
        ELSE 'pending'
    END AS status,
    o.attempts, o.last_error_code, o.last_error,
    o.payload, o.body, o.content_type, o.headers,
    o.correlation_id, o.causation_id, o.traceparent, o.idempotency_key, o.digest,
    o.lane, c.owner,
    strftime('%Y-%m-%dT%H:%M:%fZ', c.claimed_at / 1e6, 'unixepoch') AS locked_at,
    (o.shelf IS 'park' OR (h.key IS NOT NULL AND h.until IS NULL)) AS parked,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.time / 1e6, 'unixepoch') AS time,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(o.settled_at, o.tried_at, o.created_at) / 1e6, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.due_at / 1e6, 'unixepoch') AS due_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.expires_at / 1e6, 'unixepoch') AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.settled_at / 1e6, 'unixepoch') AS settled_at,
    CASE WHEN o.outcome = 'published'
        THEN strftime('%Y-%m-%dT%H:%M:%fZ', o.settled_at / 1e6, 'unixepoch') END AS published_at
FROM outbox o
LEFT JOIN outbox_claim c
    ON o.settled_at IS NULL AND c.lane = o.lane AND EXISTS (SELECT 1 FROM json_each(c.seqs) WHERE value = o.seq)
LEFT JOIN outbox_hold h ON o.settled_at IS NULL AND h.key = o.key;

-- What was received. `inbox`: a row for each message that a consumer has handled, or that is failing, dead or requeued.
CREATE TABLE inbox (
    consumer         TEXT NOT NULL,
    source           TEXT NOT NULL, -- CloudEvents: an id is unique within its source
    message_id       TEXT NOT NULL,
    outcome          TEXT NOT NULL CHECK (outcome IN ('handled', 'failing', 'dead', 'requeued')),
    attempts         INTEGER NOT NULL,
    at               INTEGER NOT NULL,
    last_error_code  TEXT,
    last_error       TEXT,
    PRIMARY KEY (consumer, message_id, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_at ON inbox (consumer, at) WHERE outcome <> 'dead';

-- Deliveries that were given up, with their bytes: a person looks at them, and requeues them.
CREATE TABLE inbox_dead (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     TEXT NOT NULL,
    source       TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    type         TEXT NOT NULL,
    key          TEXT,
    topic        TEXT NOT NULL,
    attributes   TEXT NOT NULL, -- CloudEvents' attributes, as JSON
    headers      TEXT NOT NULL, -- the message's own, as JSON
    body         BLOB,
    attempts     INTEGER NOT NULL,
    code         TEXT NOT NULL,
    error        TEXT NOT NULL,
    dead_at      INTEGER NOT NULL,
    requeued_at  INTEGER,
    UNIQUE (consumer, message_id, source)
) STRICT;
CREATE INDEX inbox_requeued ON inbox_dead (consumer, id) WHERE requeued_at IS NOT NULL;
