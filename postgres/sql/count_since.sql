-- The number of resources at a position: the present number, corrected by the first change of each key since. Null if more than
-- $6 changes have happened since.
with since as materialized (
    select key, revision, place, previous from {{schema}}.changes
    where (revision, place) > ($4::bigint, $5::int) and revision < {{template "never"}} order by revision, place limit $6 + 1
), first as (
    select distinct on (key) key, previous is not null as there from since
    where key >= $1 and key < $2 and ($3::bytea is null or key like $3) order by key, revision, place
)
select case when (select count(*) from since) <= $6 then ({{template "present_count"}}) + (
    select count(*) filter (where first.there) - count(resource.key) from first left join {{schema}}.resources resource using (key)
) end
