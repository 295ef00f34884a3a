-- Deletes a row that history no longer needs.
DELETE FROM log WHERE seq = ?1;
