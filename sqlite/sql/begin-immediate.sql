-- Starts a write transaction. It takes the write lock first, so that no later statement fails with BUSY.
BEGIN IMMEDIATE;
