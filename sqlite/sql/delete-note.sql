-- Deletes a note.
DELETE FROM journal WHERE name = ?1;
