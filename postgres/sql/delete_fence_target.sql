-- Deletes the fence's target.
delete from {{schema}}.journal where name = '~fence'
