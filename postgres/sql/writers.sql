-- The transactions that write resources; with an argument, those of them that still do.
select coalesce(array_agg(virtualtransaction), '{}') from pg_locks
where locktype = 'relation' and relation = {{name "resources"}}::regclass and mode = 'RowExclusiveLock'
  and database = (select oid from pg_database where datname = current_database())
  and {{primary "true"}} and ($1::text[] is null or virtualtransaction = any($1))
