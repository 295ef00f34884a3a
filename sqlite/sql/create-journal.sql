-- The journal of the migration tool. Most stores are never moved, so the table is created on first use.
CREATE TABLE IF NOT EXISTS journal (name TEXT PRIMARY KEY, revision INTEGER NOT NULL, value BLOB NOT NULL) STRICT;
