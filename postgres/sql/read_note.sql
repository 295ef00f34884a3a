-- A note of a migration.
select value, revision::text from {{schema}}.journal where name = $1
