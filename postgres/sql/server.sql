-- The last number and the clock of the server, and the process that answers: what a session asks first.
select last_value, clock_timestamp(), pg_backend_pid() from {{schema}}.changes_seq
