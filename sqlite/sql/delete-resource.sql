-- Deletes a resource that log-deletion has copied into the log.
DELETE FROM resources WHERE key = ?1;
