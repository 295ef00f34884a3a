-- The state that a writer needs at the start of its transaction: the fence, the bounds of history and the newest row.
SELECT fence, followed, horizon, pruned, seq, tag, written
    FROM meta LEFT JOIN (SELECT seq, tag, written FROM log ORDER BY seq DESC LIMIT 1);
