-- The sessions among the given ones that run a statement. A session that waits for the next statement of a transaction runs none. Between the
-- statements of a request it is active, and waits for the client.
select pid from pg_stat_activity
where pid = any($1) and usename = session_user and coalesce(state, '') not like 'idle%' and wait_event is distinct from 'ClientRead'
