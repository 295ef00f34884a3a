-- The sessions among the given ones that run a statement. A session that waits for the next statement of a transaction runs none.
select pid from pg_stat_activity where pid = any($1) and usename = session_user and coalesce(state, '') not like 'idle%'
