-- The changes that the next step prunes. All of them are before the oldest change of this database, even if the database has been
-- replaced.
select pruned, oldest, (
    select max(revision) from (select revision from {{schema}}.changes where revision between pruned and oldest order by revision limit $1) as few
)
from {{schema}}.store for update
