-- Gives a new store its id and version.
INSERT INTO meta (id, store, version, fence) VALUES (1, ?1, ?2, '');
