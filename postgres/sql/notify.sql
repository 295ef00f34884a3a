-- Notifies the other processes. A notification is a commit, but need not be durable.
select pg_notify($1, $2) where set_config('synchronous_commit', 'off', true) is not null
