-- Rows before the horizon, with the bytes that their predecessors and deletions free.
SELECT seq, prev, key, gone_tag IS NOT NULL,
    coalesce((SELECT length(data) FROM log AS old WHERE old.seq = log.prev), 0) + iif(gone_tag IS NULL, 0, length(data))
    FROM log WHERE seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3;
