-- Notifies the other processes if any of them listens: they hold a shared lock. A notification is a commit, but need not be durable.
select pg_notify($1, $2)
where set_config('synchronous_commit', 'off', true) is not null and exists (
    select from pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted and pid <> $3
      and database = (select oid from pg_database where datname = current_database())
      and (classid::bigint << 32) | objid::bigint = hashtextextended($1, 0)
)
