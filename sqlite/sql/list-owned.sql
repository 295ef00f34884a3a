-- The references to an owner. The index resources_owned covers all columns.
SELECT key, uid, group_version FROM resources WHERE owner = ?1 ORDER BY key;
