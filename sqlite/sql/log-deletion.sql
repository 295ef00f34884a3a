-- Appends the row of a deletion to the log, if the resource is stored with that uid and version.
INSERT INTO log (seq, tag, written, last, created, writes, prev, jump, gone_tag, key, data)
    SELECT ?1, ?2, ?3, ?8, created, writes, seq, step, tag, key, data FROM resources
    WHERE key = ?4 AND uid = ?5 AND seq = ?6 AND tag = ?7;
