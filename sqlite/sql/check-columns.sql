-- Rows in the order of keys, with their columns, and with whether the log agrees with them. It has the newest row of each stored resource.
SELECT resources.key, uid, group_version, owner, resources.data,
    log.seq IS NOT NULL AND log.tag = resources.tag AND log.key = resources.key AND log.gone_tag IS NULL
        AND max(log.seq, log.last) = max(resources.seq, resources.last) AND log.created = resources.created AND log.writes = resources.writes
    FROM resources LEFT JOIN log ON log.seq = resources.seq WHERE resources.key >= ?1 AND resources.key < ?2 ORDER BY resources.key;
