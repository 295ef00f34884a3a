-- The last number and the clock of the server, and the process that answers: the first query of a session.
select last_value, clock_timestamp(), pg_backend_pid() from {{schema}}.changes_seq
