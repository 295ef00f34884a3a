-- Many independent deletions, each as an update in quick_many.
with deleted as (
    delete from {{schema}}.resources resource
    using (
        select input.*, stored.*
        from (
            select unnest((select $1::bytea[])) as key, unnest($2::bytea[]) as uid, unnest($3::bytea[]) as expected, unnest($4::bytea[]) as token
        ) as input cross join lateral (
            select ctid as tid, created, writes, modified, modified_place
            from {{schema}}.resources resource
            where resource.key = input.key and resource.uid = input.uid and resource.version = input.expected and modified is not null
            for update skip locked
        ) as stored
        where octet_length(input.token) = 16
    ) as locked
    where resource.ctid = locked.tid and (select {{template "in_time" 5}} and {{template "quick_note"}})
    returning nextval({{name "changes_seq"}}) as revision, locked.key, resource.version, locked.token, resource.data, locked.created, locked.writes,
        locked.modified as previous, locked.modified_place as previous_place
){{if .}}, logged as ({{end}}
insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
select revision, 0, false, 2, key, version, token, data, created, writes, previous, previous_place from deleted
returning token, revision, created, writes{{if .}}
{{template "settled"}}{{else}}, false{{end}}
