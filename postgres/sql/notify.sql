-- Notifies the other processes.
select pg_notify($1, $2)
