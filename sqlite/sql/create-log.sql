-- The history. chain.go explains how the store is read as of a row. Numbers are never used again, because the newest row is
-- never pruned. The data is the last column, because it may fill many pages.
CREATE TABLE log (
    seq      INTEGER PRIMARY KEY,
    tag      INTEGER NOT NULL,
    written  INTEGER NOT NULL,           -- the time in ms
    last     INTEGER NOT NULL DEFAULT 0, -- the last row of the same call, if it is a later one
    created  INTEGER NOT NULL DEFAULT 0,
    writes   INTEGER NOT NULL DEFAULT 1,
    prev     INTEGER NOT NULL DEFAULT 0, -- the row before of the same resource; 0: this one has created it
    jump     INTEGER NOT NULL DEFAULT 0, -- an older row of the same resource, or 0
    gone_tag INTEGER,                    -- of a deletion: the tag of the row before
    key      BLOB NOT NULL,
    data     BLOB NOT NULL
) STRICT;
