-- The newest row of the log. It is the position of a reader that has seen all commits.
SELECT seq, tag FROM log ORDER BY seq DESC LIMIT 1;
