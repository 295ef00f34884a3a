-- Deletes a note of a given revision.
delete from {{schema}}.journal where name = $1 and revision::text = $2
