-- The identity of the store.
select id, {{standby}} from {{schema}}.store
