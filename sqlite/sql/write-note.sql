-- Writes a note under a new revision.
INSERT OR REPLACE INTO journal (name, revision, value) VALUES (?1, ?2, ?3);
