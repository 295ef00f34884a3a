-- One resource by its key.
SELECT seq, tag, data FROM resources WHERE key = ?1;
