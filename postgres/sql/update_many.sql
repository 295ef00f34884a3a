-- Many independent updates. Rows that other transactions hold are skipped, and so are rows that changed since the snapshot of
-- the statement: their place in the table (ctid) is one where the statement sees nothing. Both are answered as stored, but are
-- neither read nor written. The subquery with the lock can only be joined row by row through the index. The subquery with the
-- time runs once, so either all updates are late, or none. The subquery with the first array hides its length from the
-- planner: otherwise a plan for a few updates looks cheaper than the generic one, and Postgres plans each execution.
with input as materialized (
    select *
    from unnest((select $1::bytea[]), $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
        with ordinality as input (key, uid, expected, token, group_version, owner, data, place)
    where (select clock_timestamp()) < $8 and (select last_value from {{schema}}.changes_seq) >= $10 and (select {{template "warned"}})
), stored as materialized (
    select input.*, locked.*
    from input cross join lateral (
        select uid as stored_uid, version as stored_version, ctid as tid, created, writes, modified, modified_place
        from {{schema}}.resources resource where resource.key = input.key for update skip locked
    ) as locked
), note as materialized (
    {{template "note"}}, (select count(*) as many from stored where stored_uid = uid and stored_version = expected) as matching
    where many > 0
), updated as (
    update {{schema}}.resources resource
    set version = locked.token, group_version = locked.group_version, owner = locked.owner, data = locked.data,
        created = coalesce(locked.created, head.revision), writes = coalesce(locked.writes, 1) + 1, modified_place = 0,
        modified = nextval({{name "changes_seq"}})
    from note cross join stored as locked {{template "head"}}
    where resource.ctid = locked.tid and locked.stored_uid = locked.uid and locked.stored_version = locked.expected
      and note.held is not null
    returning locked.place, resource.modified as revision, locked.key, locked.token, locked.data,
        resource.created, resource.writes,
        coalesce(locked.modified, head.revision) as previous, coalesce(locked.modified_place, head.place) as previous_place
), logged as (
    insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
    select revision, 0, false, 1, key, token, token, data, created, writes, previous, previous_place from updated
), drawn as materialized (
    select max(revision) as last from updated
), alone as materialized (
    select case when $9 then not exists ({{template "others" "drawn.last"}}) end as settled from drawn
)
select input.place, stored.stored_uid, stored.stored_version, updated.revision,
    stored.place is null and exists (select from {{schema}}.resources resource where resource.key = input.key),
    updated.created, updated.writes, alone.settled
from input left join stored using (place) left join updated using (place) cross join alone
