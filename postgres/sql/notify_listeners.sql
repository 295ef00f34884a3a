-- Notifies the other processes if any of them listens: they hold a shared lock. Without any, the exclusive lock is available, and is
-- released at once. To find that out is a hundred times faster than a search of pg_locks, which makes all writers wait for the locks that
-- it reads. A notification is a commit, but need not be durable.
select pg_notify($1, $2)
where set_config('synchronous_commit', 'off', true) is not null and case when pg_try_advisory_xact_lock(hashtextextended($1, 0)) then false else exists (
    select from pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted and mode = 'ShareLock' and pid <> $3
      and database = (select oid from pg_database where datname = current_database())
      and (classid::bigint << 32) | objid::bigint = hashtextextended($1, 0)
) end
