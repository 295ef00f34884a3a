-- The number of changes from the oldest readable one to the newest one, as the difference of their numbers, and the age of the oldest
-- readable state in seconds.
select coalesce((select max(revision) from {{schema}}.changes) - oldest, 0),
    coalesce(extract(epoch from clock_timestamp() - (select min(taken) from {{schema}}.marks))::float8, 0)
from {{schema}}.store
