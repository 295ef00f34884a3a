-- The fence's target, null if the store is open, and its epoch.
select (select value from {{schema}}.journal where name = '~fence'), coalesce((select revision::text from {{schema}}.journal where name = $1), '')
