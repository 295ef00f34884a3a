-- Whether the log has a row.
SELECT 1 FROM log WHERE seq = ?1 AND tag = ?2;
