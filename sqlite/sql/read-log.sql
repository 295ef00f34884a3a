-- A page of history. The row at the position itself comes first and proves that the position belongs to this log.
-- The last column shows whether pruning has reached the page.
SELECT seq, tag, gone_tag, prev, last, created, writes, key, data, (SELECT followed FROM meta) FROM log
    WHERE seq >= ?1 ORDER BY seq;
