-- The present resources in a range of keys, for a read of history.
SELECT key, seq, tag, max(seq, last), created, writes, data FROM resources WHERE key >= ?1 AND key < ?2 ORDER BY key;
