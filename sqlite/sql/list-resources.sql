-- The resources in a range of keys, in list order.
SELECT key, seq, tag, data FROM resources WHERE key >= ?1 AND key < ?2 ORDER BY key;
