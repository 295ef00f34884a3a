-- The row up to which one step of pruning moves the horizon.
SELECT max(seq) FROM log WHERE seq > ?1 AND seq < ?2 AND written < ?5 AND (seq < ?3 OR written < ?4);
