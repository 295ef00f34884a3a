-- The identity of the store.
select id, pg_is_in_recovery() from {{schema}}.store
