-- The pointers of a row to older rows of the same resource.
SELECT prev, jump FROM log WHERE seq = ?1;
