-- The tag that completes the position of a row.
SELECT tag FROM log WHERE seq = ?1;
