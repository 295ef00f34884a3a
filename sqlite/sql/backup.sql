-- Copies the database, compacted, to a new file without blocking writers.
VACUUM INTO ?1;
