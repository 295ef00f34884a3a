-- The rows at which the store can be read.
SELECT horizon, seq, tag FROM meta LEFT JOIN (SELECT seq, tag FROM log ORDER BY seq DESC LIMIT 1);
