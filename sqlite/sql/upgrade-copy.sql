-- Last step of the upgrade from version 1: fills the new tables and drops the old ones.
-- Version 1 had no history; its log held the writes and was pruned from its beginning. The rows keep their numbers, so
-- cursors and versions stay valid. The state before the first row is not known at each later row, so the store can be read
-- from the newest row on, although changes can be followed from the first. A program of version 1 that has the store open
-- cannot write any more, because its statements name the column log.at, which no longer exists.
UPDATE meta SET version = 2, (followed, horizon) = (SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM old_log);
UPDATE meta SET followed = 0 WHERE followed = 1 AND (SELECT count(*) FROM old_log) = horizon;
UPDATE meta SET pruned = followed;
INSERT INTO log (seq, tag, written, created, writes, prev, jump, gone_tag, key, data)
    SELECT seq, tag, (SELECT coalesce(min(at), 0) FROM old_log), seq, 1, 0, 0, NULL, key, data
    FROM old_resources WHERE seq NOT IN (SELECT seq FROM old_log);
INSERT INTO log (seq, tag, written, created, writes, prev, jump, gone_tag, key, data)
    SELECT seq, tag, at, created, writes, prev, jump, gone_tag, key, data FROM old_log JOIN links USING (seq) ORDER BY seq;
INSERT INTO gone (key, seq) SELECT key, seq FROM old_log WHERE gone_seq IS NOT NULL;
INSERT INTO resources (key, seq, tag, created, writes, step, leap, uid, group_version, owner, data)
    SELECT key, seq, tag, coalesce(created, seq), coalesce(writes, 1), coalesce(step, 0), coalesce(leap, 0), uid, group_version, owner, data
    FROM old_resources LEFT JOIN links USING (seq) ORDER BY key;
DROP TABLE links;
DROP TABLE old_log;
DROP TABLE old_resources;
