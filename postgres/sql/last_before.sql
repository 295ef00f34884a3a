-- The last change up to a number, and whether there is a change at or after the number.
select id, oldest, last.revision, last.place, substr(last.token, 1, 8),
    exists (select from {{schema}}.changes where revision >= $1 and revision < {{template "never"}})
from {{schema}}.store left join lateral (
    select revision, place, token from {{schema}}.changes where revision > 0 and revision <= $1 order by revision desc, place desc limit 1
) as last on true
