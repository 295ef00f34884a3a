-- The sizes of the tables in pages.
select pg_relation_size({{name "resources"}}::regclass) / current_setting('block_size')::int, pg_relation_size({{name "changes"}}::regclass) / current_setting('block_size')::int
