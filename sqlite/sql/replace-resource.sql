-- Replaces a resource whose owner or group version changes. The parameters are those of update-resource.
UPDATE resources SET seq = ?1, tag = ?2, last = ?10, group_version = ?3, data = ?4, owner = ?9, writes = ?11, step = ?12, leap = ?13
    WHERE key = ?5 AND uid = ?6 AND seq = ?7 AND tag = ?8;
