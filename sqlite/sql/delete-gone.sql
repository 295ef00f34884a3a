-- Deletes the record of a deletion before the horizon.
DELETE FROM gone WHERE key = ?1 AND seq = ?2;
