-- The newest row, up to a row, at which no call is incomplete.
SELECT seq, tag FROM log WHERE seq <= ?1 AND last <= seq ORDER BY seq DESC LIMIT 1;
