-- The id and the version of the store, and whether the index of owners is the present one. It works on stores of all versions.
SELECT store, version, EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'resources_owned') FROM meta;
