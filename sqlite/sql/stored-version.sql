-- The uid and the version of a resource, for the decision tables.
SELECT uid, seq, tag FROM resources WHERE key = ?1;
