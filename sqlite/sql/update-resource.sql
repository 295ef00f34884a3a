-- Replaces a resource without a change of owner or group version, which is the common case, in one statement.
-- Setting an indexed column would update its index even if the value stays the same.
UPDATE resources SET seq = ?1, tag = ?2, last = ?10, data = ?4, writes = ?11, step = ?12, leap = ?13
    WHERE key = ?5 AND uid = ?6 AND seq = ?7 AND tag = ?8 AND owner IS ?9 AND group_version = ?3;
