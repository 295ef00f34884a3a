-- The changes after a given one, in order, bounded by rows and by bytes. The first row describes the store: whether the given
-- change is there, and whether the server is a standby, which may not have the change yet. The subqueries hide the arguments from the
-- planner: with their values, a plan looks so much cheaper that Postgres would plan every execution anew.
select id, oldest, (select substr(token, 1, 8) from {{schema}}.changes where revision = $1 and place = $2),
    null::bigint, null::int, {{standby}}, null::smallint, null::bytea, null::bytea, null::bytea, null::bytea, null::bigint, null::bigint
from {{schema}}.store
union all
select null, null, null, revision, place, more, op, key, version, substr(token, 1, 8), data, created, writes
from (
    select *, sum(octet_length(data)) over (order by revision, place rows unbounded preceding) - octet_length(data) as before
    from (
        select * from {{schema}}.changes
        where (revision, place) > ((select $1::bigint), (select $2::int)) and revision < {{template "never"}} order by revision, place limit (select $3::bigint)
    ) as many
) as page
where before < $4
