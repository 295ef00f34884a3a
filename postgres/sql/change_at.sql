-- The log's entry at a position, and whether its commit continues after it.
select id, oldest, change.revision is not null, change.more, substr(change.token, 1, 8)
from {{schema}}.store left join {{schema}}.changes change on change.revision = $1 and change.place = $2
