-- Locks a note of a given revision.
select 1 from {{schema}}.journal where name = $1 and revision::text = $2 for update
