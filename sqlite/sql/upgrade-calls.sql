-- Adds the columns for the last row of a call to an early version 2, where every row counts as a call. Programs that have the store open
-- continue. They do not set the columns, so a number that is not above the row is of an earlier state.
ALTER TABLE log ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
ALTER TABLE resources ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
