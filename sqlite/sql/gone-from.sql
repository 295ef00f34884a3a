-- The first deletion in a range of keys.
SELECT key, seq FROM gone WHERE key >= ?1 AND key < ?2 ORDER BY key, seq LIMIT 1;
