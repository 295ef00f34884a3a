-- As present-versions, without the data, which may fill many pages.
SELECT key, seq, tag, max(seq, last), created, writes FROM resources WHERE key >= ?1 AND key < ?2 ORDER BY key;
