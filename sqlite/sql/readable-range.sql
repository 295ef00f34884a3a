-- The rows at which the store can be read, and the fence. Programs of an earlier version can move the horizon into a call, which nobody can
-- read a part of.
SELECT max(horizon, coalesce((SELECT last FROM log WHERE seq = horizon), 0)), newest.seq, newest.tag, fence
    FROM meta LEFT JOIN (SELECT seq, tag FROM log ORDER BY seq DESC LIMIT 1) newest;
