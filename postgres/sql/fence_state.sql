-- The fence's target, null if the store is open, and its epoch.
select {{template "fence"}}, coalesce((select revision::text from {{schema}}.journal where name = $1), '')
