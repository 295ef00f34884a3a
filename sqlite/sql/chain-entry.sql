-- The head of the chain of a resource, if it is stored at that version.
SELECT created, writes, step, leap FROM resources WHERE key = ?1 AND seq = ?2 AND tag = ?3;
