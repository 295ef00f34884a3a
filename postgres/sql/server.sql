-- The last number and the clock of the server, and the process that answers: the first query of a session. The last
-- column is the highest number that the store has used.
select last_value, clock_timestamp(), pg_backend_pid(), (
    select greatest(oldest, pruned, (select max(revision) from {{schema}}.changes where revision < {{template "never"}})) from {{schema}}.store
) from {{schema}}.changes_seq
