-- The resources. They are ordered by key, so that a list reads neighbors. Few of them fit into a page, so their tree is deep,
-- and the index of owners covers its query: otherwise each child would cost a descent of that tree.
CREATE TABLE resources (
    key           BLOB PRIMARY KEY,
    seq           INTEGER NOT NULL,
    tag           INTEGER NOT NULL,
    last          INTEGER NOT NULL DEFAULT 0, -- the last row of the same call, if it is a later one
    created       INTEGER NOT NULL DEFAULT 0, -- the last row of the call that created the resource
    writes        INTEGER NOT NULL DEFAULT 1, -- the rows from that one to the newest
    step          INTEGER NOT NULL DEFAULT 0, -- the newest of them whose count is divisible by 32
    leap          INTEGER NOT NULL DEFAULT 0, -- the newest of them whose count is divisible by 1024
    uid           TEXT NOT NULL,
    group_version TEXT NOT NULL,
    owner         BLOB,
    data          BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX resources_owned ON resources (owner, key, uid, group_version) WHERE owner IS NOT NULL;
