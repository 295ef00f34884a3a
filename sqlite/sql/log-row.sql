-- A row of the log. The data is optional because it may fill many pages.
SELECT tag, last, created, writes, prev, iif(?2, data, x'') FROM log WHERE seq = ?1;
