-- Closes the store for writes, or opens it.
UPDATE meta SET fence = ?1;
