-- Marks the last change, unless there is a recent mark. The database may have been replaced, by a fail-over or a restore, since
-- the change was read, so only an existing change is marked.
insert into {{schema}}.marks (revision)
select $1::bigint
where not exists (select from {{schema}}.marks where taken > clock_timestamp() - make_interval(secs => $2))
  and exists (select from {{schema}}.changes where revision = $1)
on conflict do nothing
