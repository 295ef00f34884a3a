-- The resources of a range of keys, with an optional pattern. Like list_steps, it reads one snapshot, and produces rows while
-- the client reads them.
select key, version, data from {{schema}}.resources
where key >= {{primary "$1::bytea"}} and ($2::bytea is null or key < $2) and ($3::bytea is null or key like $3)
order by key
