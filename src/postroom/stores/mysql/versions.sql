-- Which migrations were begun, with how many lanes, and which of them were finished (`applied_at`). The first thing to be
-- made: `postroom init` and whoever else migrates read it.
CREATE TABLE IF NOT EXISTS outbox_schema (
    version     int NOT NULL PRIMARY KEY,
    name        varchar(255) NOT NULL,
    lanes       int,
    applied_at  datetime(6)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
