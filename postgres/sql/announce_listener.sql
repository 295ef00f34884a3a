-- Takes the shared lock of the listening processes.
select pg_backend_pid() from pg_advisory_lock_shared(hashtextextended($1, 0))
