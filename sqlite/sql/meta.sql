-- The id and the version of the store, and whether the index of owners and the columns of calls are the present ones. It works on stores
-- of all versions.
SELECT store, version, EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'resources_owned'),
    EXISTS (SELECT 1 FROM pragma_table_info('resources') WHERE name = 'last') FROM meta;
