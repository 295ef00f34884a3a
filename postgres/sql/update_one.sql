-- One update. A row that another transaction holds is skipped: a lock timeout would need a statement of its own for every
-- write. "stored" is the conflicting resource in the snapshot of the statement.
--
-- This statement, delete_one, update_many and apply do nothing if the last number drawn is below the sender's floor: after a
-- lost answer, their changes would not be found above the floor. A fail-over or a restore leads to such a database.
with written as (
    update {{schema}}.resources resource
    set version = $4, group_version = $8, owner = $9, data = $10,
        created = coalesce(locked.created, locked.head[1]), writes = coalesce(locked.writes, 1) + 1, modified_place = 0,
        modified = (select nextval({{name "changes_seq"}}) from ({{template "note"}} offset 0) as note where note.held is not null)
    from {{template "locked"}}
    where resource.ctid = locked.tid
    returning resource.modified as revision, resource.created, resource.writes,
        coalesce(locked.modified, locked.head[1]) as previous, coalesce(locked.modified_place, locked.head[2]) as previous_place
), logged as (
    insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
    select revision, 0, false, 1, $1, $4, $4, $10, created, writes, previous, previous_place from written
    returning revision, created, writes
)
{{template "answer"}}
