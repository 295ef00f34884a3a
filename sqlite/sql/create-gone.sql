-- The deletions since the horizon, by key: the starts of the chains of deleted resources.
CREATE TABLE gone (
    key BLOB NOT NULL,
    seq INTEGER NOT NULL, -- the row of a deletion
    PRIMARY KEY (key, seq)
) STRICT, WITHOUT ROWID;
