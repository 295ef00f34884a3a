-- The last number drawn, and the lowest number of a note whose writer has not committed. The subquery refers to the outer row,
-- so it runs after that row is read; in the other order, numbers could be drawn unseen in between. A note has the lower 31 bits
-- of its number, which is close to the last one.
select last_value, (
    select min(last_value + ((objid::bigint - last_value + 1073741824) & 2147483647) - 1073741824)
    from pg_locks
    where locktype = 'advisory' and objsubid = 2
      and classid::bigint = ({{name "changes"}}::regclass::oid::bigint & 2147483647)
      and database = (select oid from pg_database where datname = current_database())
), pg_is_in_recovery()
from {{schema}}.changes_seq
