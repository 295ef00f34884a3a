-- Whether there is a note.
select exists (select from {{schema}}.journal where name = $1)
