-- The last change up to a number.
select id, oldest, revision, place, substr(token, 1, 8)
from {{schema}}.store as store left join lateral (
    select revision, place, token from {{schema}}.changes where revision > 0 and revision <= greatest($1, store.oldest)
    order by revision desc, place desc limit 1
) as last on true
