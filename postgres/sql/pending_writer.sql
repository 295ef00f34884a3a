-- The session with the lowest note, what it waits for, and its role.
select pid, coalesce(wait_event, state, 'unknown'), coalesce(usename::text, 'unknown')
from pg_locks join pg_stat_activity using (pid)
where locktype = 'advisory' and objsubid = 2
  and classid::bigint = ({{name "changes"}}::regclass::oid::bigint & 2147483647)
  and database = (select oid from pg_database where datname = current_database())
order by objid::bigint limit 1
