-- Creates a resource unless its key exists. The parameters are those of update-resource.
INSERT INTO resources (seq, tag, last, created, group_version, data, key, uid, owner)
    VALUES (?1, ?2, ?10, max(?1, ?10), ?3, ?4, ?5, ?6, ?9) ON CONFLICT (key) DO NOTHING;
