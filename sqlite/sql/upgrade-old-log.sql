-- The old log in the order of its chains.
SELECT seq, gone_seq, key FROM old_log ORDER BY key, seq;
