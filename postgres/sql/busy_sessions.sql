-- The sessions among the given ones that run a statement.
select pid from pg_stat_activity where pid = any($1) and usename = session_user and state is distinct from 'idle'
