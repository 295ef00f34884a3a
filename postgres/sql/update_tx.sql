-- Updates and checks of stored resources, all or none, with one number. A check has no rank. As in update_many, rows that other
-- transactions hold are skipped. A check reads the locked row as it is now. An update also needs the row in the snapshot of the
-- statement: it could not change one that was written since, after others were changed. Nothing waits for a row, so the order of the
-- locks does not matter. The subquery with the first array is explained in update_many.
with input as materialized (
    select *
    from unnest((select $1::bytea[]), $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $11::int[])
        with ordinality as input (key, uid, expected, token, group_version, owner, data, rank, place)
    where (select clock_timestamp()) < $8 and (select last_value from {{schema}}.changes_seq) >= $10 and (select {{template "warned"}})
), stored as materialized (
    select input.*, locked.*
    from input cross join lateral (
        select uid as stored_uid, version as stored_version, ctid as tid, created, writes, modified, modified_place
        from {{schema}}.resources resource where resource.key = input.key for update skip locked
    ) as locked
), matching as materialized (
    select count(*) as many, count(rank) as updates
    from stored left join lateral (
        select true as visible from {{schema}}.resources resource where resource.ctid = stored.tid and stored.rank is not null offset 0
    ) as present on true
    where stored_uid = uid and stored_version = expected and (rank is null or visible)
), note as materialized (
    {{template "note"}}, matching where many = cardinality($1)
), drawn as materialized (
    select nextval({{name "changes_seq"}}) as revision from note where held is not null
), updated as (
    update {{schema}}.resources resource
    set version = locked.token, group_version = locked.group_version, owner = locked.owner, data = locked.data,
        created = coalesce(locked.created, head.revision), writes = coalesce(locked.writes, 1) + 1,
        modified = drawn.revision, modified_place = locked.rank
    from drawn cross join stored as locked {{template "head"}}
    where resource.ctid = locked.tid and locked.rank is not null
    returning locked.place, locked.rank, resource.modified as revision, locked.key, locked.token, locked.data,
        resource.created, resource.writes,
        coalesce(locked.modified, head.revision) as previous, coalesce(locked.modified_place, head.place) as previous_place
), logged as (
    insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
    select revision, rank, rank < updates - 1, 1, key, token, token, data, created, writes, previous, previous_place
    from updated cross join matching
), alone as materialized (
    select case when $9 then not exists ({{template "others" "drawn.revision"}}) end as settled from drawn
)
select input.place, stored.stored_uid, stored.stored_version, updated.revision,
    stored.place is null and exists (select from {{schema}}.resources resource where resource.key = input.key),
    updated.created, updated.writes, alone.settled
from input left join stored using (place) left join updated using (place) left join alone on true
