-- Rows in the order of keys, with their columns, and with whether the log agrees with them, if it still has their row.
SELECT resources.key, uid, group_version, owner, resources.data,
    log.seq IS NULL OR (log.tag = resources.tag AND log.key = resources.key AND log.gone_tag IS NULL)
    FROM resources LEFT JOIN log ON log.seq = resources.seq WHERE resources.key >= ?1 AND resources.key < ?2 ORDER BY resources.key;
