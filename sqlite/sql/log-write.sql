-- Appends the row of a write to the log.
INSERT INTO log (seq, tag, written, last, created, writes, prev, jump, key, data)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);
