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
