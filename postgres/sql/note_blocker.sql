-- A session that locks a note exclusively, which no session of a store does, and its role.
select pid, coalesce(usename::text, 'unknown')
from pg_locks join pg_stat_activity using (pid)
where locktype = 'advisory' and objsubid = 2 and mode <> 'ShareLock'
  and classid::bigint = ({{name "changes"}}::regclass::oid::bigint & 2147483647)
  and database = (select oid from pg_database where datname = current_database())
order by granted desc limit 1
