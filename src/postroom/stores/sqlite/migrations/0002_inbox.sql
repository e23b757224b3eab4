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
