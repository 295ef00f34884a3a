-- The state of the store as a whole. The fence is empty, or it names the target of a move; writes are then
-- refused.
CREATE TABLE meta (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    store    BLOB NOT NULL,
    version  INTEGER NOT NULL,
    fence    TEXT NOT NULL,
    horizon  INTEGER NOT NULL DEFAULT 0, -- the oldest row at which the store can be read
    followed INTEGER NOT NULL DEFAULT 0, -- the oldest row after which all are there
    pruned   INTEGER NOT NULL DEFAULT 0  -- the row before which nothing is left to prune
) STRICT;
