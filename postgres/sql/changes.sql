-- The changes after a given one, in order, bounded by rows and by bytes. The first row describes the store: whether the given
-- change is there, and whether the server is a standby, which may not have the change yet.
select id, oldest, (select substr(token, 1, 8) from {{schema}}.changes where revision = $1 and place = $2),
    null::bigint, null::int, {{standby}}, null::smallint, null::bytea, null::bytea, null::bytea, null::bytea, null::bigint, null::bigint
from {{schema}}.store
union all
select null, null, null, revision, place, more, op, key, version, substr(token, 1, 8), data, created, writes
from (
    select *, sum(octet_length(data)) over (order by revision, place rows unbounded preceding) - octet_length(data) as before
    from (
        select * from {{schema}}.changes
        where (revision, place) > ($1, $2) and revision < {{template "never"}} order by revision, place limit $3
    ) as many
) as page
where before < $4
