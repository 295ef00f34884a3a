-- Whether nothing in a range of keys has changed after a position. At most $5 changes are read to find out.
with since as materialized (
    select key from {{schema}}.changes where (revision, place) > ($3::bigint, $4::int) and revision < {{template "never"}} order by revision, place limit $5 + 1
)
select (select count(*) from since) <= $5 and not exists (select from since where key >= $1 and key < $2)
