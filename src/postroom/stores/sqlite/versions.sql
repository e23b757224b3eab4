-- Which migrations were applied. The first thing to be made: `postroom init` and whoever else migrates read it.
CREATE TABLE IF NOT EXISTS outbox_schema (
    version     INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    applied_at  INTEGER NOT NULL
) STRICT;
