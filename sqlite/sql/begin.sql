-- Starts a read transaction, so that several statements see one snapshot.
BEGIN;
