-- The oldest row after another one, and its time.
SELECT seq, written FROM log WHERE seq > ?1 ORDER BY seq LIMIT 1;
