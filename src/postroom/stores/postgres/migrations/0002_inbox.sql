-- What was received. `inbox`: a row for each message that a consumer has handled, or that is failing, dead or requeued.
CREATE TABLE inbox (
    consumer         text NOT NULL,
    source           text NOT NULL, -- CloudEvents: an id is unique within its source
    message_id       uuid NOT NULL,
    outcome          text NOT NULL, -- handled, failing, dead, requeued
    attempts         integer NOT NULL,
    at               timestamptz NOT NULL,
    last_error_code  text,
    last_error       text,
    PRIMARY KEY (consumer, message_id, source)
);
-- Rows come in the order of their time: this index costs next to nothing, and is enough to forget the oldest.
CREATE INDEX inbox_at ON inbox USING brin (at);

-- Deliveries that were given up, with their bytes: a person looks at them, and requeues them.
CREATE TABLE inbox_dead (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer     text NOT NULL,
    source       text NOT NULL,
    message_id   uuid NOT NULL,
    type         text NOT NULL,
    key          text,
    topic        text NOT NULL,
    attributes   text NOT NULL, -- CloudEvents' attributes, as JSON
    headers      text NOT NULL, -- the message's own, as JSON
    body         bytea,
    attempts     integer NOT NULL,
    code         text NOT NULL,
    error        text NOT NULL,
    dead_at      timestamptz NOT NULL,
    requeued_at  timestamptz,
    UNIQUE (consumer, message_id, source)
);
CREATE INDEX inbox_requeued ON inbox_dead (consumer, id) WHERE requeued_at IS NOT NULL;
