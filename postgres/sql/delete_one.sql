-- One deletion. Its change contains the deleted version and data, and the number of writes before it.
with deleted as (
    delete from {{schema}}.resources resource
    using {{template "locked"}} cross join lateral (select note.held from ({{template "note"}} offset 0) as note where locked.tid is not null offset 0) as noted
    where resource.ctid = locked.tid and noted.held is not null
    returning resource.version, resource.data, nextval({{name "changes_seq"}}) as revision,
        coalesce(locked.created, locked.head[1]) as created, coalesce(locked.writes, 1) as writes,
        coalesce(locked.modified, locked.head[1]) as previous, coalesce(locked.modified_place, locked.head[2]) as previous_place
), logged as (
    insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
    select revision, 0, false, 2, $1, version, $4, data, coalesce(created, revision), writes, previous, previous_place from deleted
    returning revision, created, writes
)
{{template "answer"}}
