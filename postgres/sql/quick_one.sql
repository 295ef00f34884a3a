-- One update, if its version is stored and nothing stands in its way. Then the answer is a row, otherwise none. The row must contain its
-- numbers. Nothing waits: neither for the row nor for the note, so that no lock timeout is set. The condition with the note has a volatile
-- function and refers to no table, so it is tested after the row was locked and joined, and before the number is drawn. The template's
-- argument is whether the answer says that no earlier change is pending.
with written as (
    update {{schema}}.resources resource
    set version = $4, group_version = $7, owner = $8, data = $9, writes = locked.writes + 1,
        modified = nextval({{name "changes_seq"}}), modified_place = 0
    from (
        select ctid as tid, writes, modified, modified_place
        from {{schema}}.resources
        where key = $1 and uid = $2 and version = $3 and modified is not null and {{template "in_time" 5}}
        for update skip locked
    ) as locked
    where resource.ctid = locked.tid and {{template "quick_note"}}
    returning resource.modified as revision, resource.created, resource.writes, locked.modified as previous, locked.modified_place as previous_place
){{if .}}, logged as ({{end}}
insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
select revision, 0, false, 1, $1, $4, $4, $9, created, writes, previous, previous_place from written
returning token, revision, created, writes{{if .}}
{{template "settled"}}{{else}}, false{{end}}
