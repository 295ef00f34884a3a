-- First step of the upgrade from version 1: renames the old tables, because the new ones have their names.
-- Table links receives the chains.
ALTER TABLE meta ADD COLUMN horizon INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN followed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
DROP INDEX resources_by_owner;
ALTER TABLE resources RENAME TO old_resources;
ALTER TABLE log RENAME TO old_log;
CREATE INDEX old_log_by_key ON old_log (key);
CREATE TABLE links (
    seq     INTEGER PRIMARY KEY,
    created INTEGER NOT NULL,
    writes  INTEGER NOT NULL,
    prev    INTEGER NOT NULL,
    jump    INTEGER NOT NULL,
    step    INTEGER NOT NULL,
    leap    INTEGER NOT NULL
) STRICT;
