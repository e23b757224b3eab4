-- Which migrations were applied. The first thing to be made: `postroom init` and whoever else migrates read it.
CREATE TABLE IF NOT EXISTS outbox_schema (
    version     integer PRIMARY KEY,
    name        text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
