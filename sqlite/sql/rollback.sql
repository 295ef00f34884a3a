-- Ends a transaction and discards its writes.
ROLLBACK;
