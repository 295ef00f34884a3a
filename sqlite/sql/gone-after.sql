-- The first deletion of a key after a row. The earlier ones may be many.
SELECT seq FROM gone WHERE key = ?1 AND seq > ?2 ORDER BY seq LIMIT 1;
