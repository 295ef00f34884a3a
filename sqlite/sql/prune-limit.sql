-- The row up to which one step of pruning moves the horizon: the last one of a call.
SELECT max(seq, last) FROM log WHERE seq > ?1 AND seq < ?2 AND written < ?5 AND (seq < ?3 OR written < ?4) ORDER BY seq DESC LIMIT 1;
