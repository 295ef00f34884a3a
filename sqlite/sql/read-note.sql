-- A note of the migration tool.
SELECT revision, value FROM journal WHERE name = ?1;
