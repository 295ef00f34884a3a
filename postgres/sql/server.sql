-- The last number and the clock of the server in microseconds, and the process that answers: the first query of a session. The next column is the
-- highest number that the store has used. If is_called is false, the last value of the sequence is the next number, and the first writer
-- would not have a note below its number.
select last_value - (not is_called)::int, (extract(epoch from clock_timestamp()) * 1000000)::bigint, pg_backend_pid(), (
    select greatest(oldest, pruned, (select max(revision) from {{schema}}.changes where revision < {{template "never"}})) from {{schema}}.store
), is_called
from {{schema}}.changes_seq
