-- The tables and the owner of the file. One statement sees one state while another process creates the tables.
SELECT count(*), count(*) FILTER (WHERE name IN ('meta', 'resources', 'log')),
    (SELECT application_id FROM pragma_application_id) FROM sqlite_schema WHERE type = 'table';
