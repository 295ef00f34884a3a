-- The target of the move, empty for an open store.
SELECT fence FROM meta;
