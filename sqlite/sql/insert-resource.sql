-- Creates a resource unless its key exists. The parameters are those of update-resource.
INSERT INTO resources (seq, tag, created, group_version, data, key, uid, owner)
    VALUES (?1, ?2, ?1, ?3, ?4, ?5, ?6, ?9) ON CONFLICT (key) DO NOTHING;
