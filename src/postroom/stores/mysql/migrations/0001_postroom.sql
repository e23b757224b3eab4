-- The first tables of Postroom on MariaDB and MySQL. Times are in UTC, whatever the zone of the server or of who writes. The
-- collation compares byte for byte, and does not take a trailing blank for nothing; on MySQL it is called
-- utf8mb4_0900_bin. These databases commit after each CREATE: an `init` that died half-way is finished by the next one,
-- so every statement may be run again.

-- One row per message, kept after publishing until retention takes it. A stranger's INSERT need name only type, key and
-- payload: everything else has a default.
CREATE TABLE IF NOT EXISTS outbox (
    -- The order of writing. The server keeps the counter through a restart: a number is never used again.
    seq              bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- UUIDv7: milliseconds, then random bits.
    id               varchar(36) NOT NULL DEFAULT (lower(concat(
                         insert(lpad(hex(timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6)) DIV 1000), 12, '0'), 9, 0, '-'),
                         '-7', substr(md5(uuid()), 1, 3),
                         '-', substr('89ab', 1 + floor(4 * rand()), 1), substr(md5(uuid()), 4, 3),
                         '-', substr(md5(uuid()), 7, 12)))),
    -- The slice of the keys it belongs to, by CRC-32. Without a key, each message is a line of its own.
    lane             int GENERATED ALWAYS AS (mod(crc32(coalesce(`key`, id)), 64 /* lanes */)) STORED,
    type             varchar(200) NOT NULL,
    `key`            varchar(200),
    aggregate        varchar(255),
    topic            varchar(255),
    payload          mediumtext,
    body             mediumblob,
    content_type     varchar(255) NOT NULL DEFAULT 'application/json',
    headers          mediumtext,
    correlation_id   varchar(255),
    causation_id     varchar(255),
    traceparent      varchar(255),
    idempotency_key  varchar(255),
    digest           varchar(64),
    time             datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    expires_at       datetime(6),
    created_at       datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    attempts         int NOT NULL DEFAULT 0,
    due_at           datetime(6),
    -- Why an open message is out of the line: 'key', behind its key's held head; 'time', not due yet. On a dead one,
    -- 'park': it holds its key.
    shelf            varchar(4),
    -- How often it was in flight when a relay died or lost its lease. Such a one travels with its like, then alone.
    lost             int NOT NULL DEFAULT 0,
    tried_at         datetime(6),
    settled_at       datetime(6),
    outcome          varchar(9), -- published, dead, expired, discarded
    last_error_code  varchar(255),
    last_error       varchar(512),
    -- There are no partial indexes here: these three are NULL where a row has no business in the index, and nobody who
    -- asks for a lane or a key meets it there.
    in_line          int GENERATED ALWAYS AS (CASE WHEN settled_at IS NULL AND shelf IS NULL THEN lane END) STORED,
    aside            varchar(200) GENERATED ALWAYS AS (CASE WHEN shelf IS NOT NULL THEN `key` END) STORED,
    later            int GENERATED ALWAYS AS (CASE WHEN settled_at IS NULL AND shelf = 'time' THEN lane END) STORED,
    UNIQUE KEY outbox_id_key (id),
    UNIQUE KEY outbox_idempotency (idempotency_key),
    -- The line: what is open and may go. The only index that the hot path reads.
    KEY outbox_line (in_line, seq),
    -- What is out of the way of the line: behind a held key, or the dead message that parks it.
    KEY outbox_aside (aside, shelf, seq),
    -- What waits for its time.
    KEY outbox_later (later, due_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Who may send which slice of the keys. The epoch only grows.
CREATE TABLE IF NOT EXISTS outbox_lane (
    lane         int NOT NULL PRIMARY KEY,
    owner        varchar(255),
    epoch        bigint NOT NULL DEFAULT 0,
    lease_until  datetime(6)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
INSERT IGNORE INTO outbox_lane (lane)
WITH RECURSIVE digit (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digit WHERE n < 31)
SELECT high.n * 32 + low.n FROM digit AS high CROSS JOIN digit AS low WHERE high.n * 32 + low.n < 64 /* lanes */;

-- What is in flight: at most one claim per lane, under an id that is never used again. By lane first: a new claim then
-- takes the place of the one before it, and waits for nobody's.
CREATE TABLE IF NOT EXISTS outbox_claim (
    lane        int NOT NULL PRIMARY KEY,
    id          bigint NOT NULL AUTO_INCREMENT,
    epoch       bigint NOT NULL,
    owner       varchar(255) NOT NULL,
    seqs        mediumtext NOT NULL, -- with commas between
    claimed_at  datetime(6) NOT NULL,
    -- Nothing else was in flight in that relay's process.
    alone       boolean NOT NULL DEFAULT false,
    KEY outbox_claim_id (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Keys whose head waits for its next try, or is dead and parks them (until is NULL).
CREATE TABLE IF NOT EXISTS outbox_hold (
    `key`  varchar(200) NOT NULL PRIMARY KEY,
    lane   int NOT NULL,
    until  datetime(6),
    KEY outbox_hold_due (lane, until)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Relays that say they are alive.
CREATE TABLE IF NOT EXISTS outbox_relay (
    owner    varchar(255) NOT NULL PRIMARY KEY,
    name     varchar(255) NOT NULL,
    host     varchar(255) NOT NULL,
    pid      bigint NOT NULL,
    version  varchar(255) NOT NULL,
    process  varchar(255) NOT NULL,
    seen_at  datetime(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- What a person queries.
CREATE OR REPLACE VIEW outbox_messages AS
SELECT
    o.seq, o.id, o.type, o.`key`, o.aggregate, o.topic,
    CASE
        WHEN o.outcome IS NOT NULL THEN o.outcome
        WHEN c.id IS NOT NULL THEN 'sending'
        WHEN o.attempts > 0 THEN 'failed'
        ELSE 'pending'
    END AS status,
    o.attempts, o.last_error_code, o.last_error,
    o.payload, o.body, o.content_type, o.headers,
    o.correlation_id, o.causation_id, o.traceparent, o.idempotency_key, o.digest,
    o.lane, c.owner, c.claimed_at AS locked_at,
    (o.shelf <=> 'park' OR (h.`key` IS NOT NULL AND h.until IS NULL)) AS parked,
    o.time, o.created_at, coalesce(o.settled_at, o.tried_at, o.created_at) AS updated_at,
    o.due_at, o.expires_at, o.settled_at,
    CASE WHEN o.outcome = 'published' THEN o.settled_at END AS published_at
FROM outbox o
LEFT JOIN outbox_claim c ON o.settled_at IS NULL AND c.lane = o.lane AND find_in_set(o.seq, c.seqs)
LEFT JOIN outbox_hold h ON o.settled_at IS NULL AND h.`key` = o.`key`;

-- What was received. `inbox`: a row for each message that a consumer has handled, or that is failing, dead or requeued.
CREATE TABLE IF NOT EXISTS inbox (
    consumer         varchar(255) NOT NULL,
    source           varchar(255) NOT NULL, -- CloudEvents: an id is unique within its source
    message_id       varchar(36) NOT NULL,
    outcome          varchar(8) NOT NULL, -- handled, failing, dead, requeued
    attempts         int NOT NULL,
    at               datetime(6) NOT NULL,
    -- Who wrote it last: MySQL has no RETURNING, so whoever remembers looks for what bears its own number.
    token            bigint NOT NULL DEFAULT 0,
    last_error_code  text,
    last_error       varchar(512),
    PRIMARY KEY (consumer, message_id, source),
    KEY inbox_at (consumer, at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Deliveries that were given up, with their bytes: a person looks at them, and requeues them.
CREATE TABLE IF NOT EXISTS inbox_dead (
    id           bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer     varchar(255) NOT NULL,
    source       varchar(255) NOT NULL,
    message_id   varchar(36) NOT NULL,
    type         text NOT NULL,
    `key`        text,
    topic        text NOT NULL,
    attributes   mediumtext NOT NULL, -- CloudEvents' attributes, as JSON
    headers      mediumtext NOT NULL, -- the message's own, as JSON
    body         longblob,
    attempts     int NOT NULL,
    code         text NOT NULL,
    error        varchar(512) NOT NULL,
    dead_at      datetime(6) NOT NULL,
    requeued_at  datetime(6),
    UNIQUE KEY inbox_message (consumer, message_id, source),
    KEY inbox_requeued (consumer, requeued_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
