-- The rows at which the store can be read, and the fence.
SELECT horizon, seq, tag, fence FROM meta LEFT JOIN (SELECT seq, tag FROM log ORDER BY seq DESC LIMIT 1);
