-- Many independent updates, each as in quick_one: the answer has a row for each one that was applied. The note is taken once, before the
-- first number. Each row is locked, changed and logged before the next one is read, so a row is locked before its number is drawn. The
-- subquery with the first array hides its length from the planner, as in update_many. Without the condition on the token, Postgres would
-- expect many rows and remember the results of the search by ctid.
with written as (
    update {{schema}}.resources resource
    set version = locked.token, group_version = locked.group_version, owner = locked.owner, data = locked.data, writes = locked.writes + 1,
        modified = nextval({{name "changes_seq"}}), modified_place = 0
    from (
        select input.*, stored.*
        from (
            select unnest((select $1::bytea[])) as key, unnest($2::bytea[]) as uid, unnest($3::bytea[]) as expected, unnest($4::bytea[]) as token,
                unnest($7::bytea[]) as group_version, unnest($8::bytea[]) as owner, unnest($9::bytea[]) as data
        ) as input cross join lateral (
            select ctid as tid, writes, modified, modified_place
            from {{schema}}.resources resource
            where resource.key = input.key and resource.uid = input.uid and resource.version = input.expected and modified is not null
            for update skip locked
        ) as stored
        where octet_length(input.token) = 16
    ) as locked
    where resource.ctid = locked.tid and (select {{template "in_time" 5}} and {{template "quick_note"}})
    returning resource.modified as revision, locked.key, locked.token, locked.data, resource.created, resource.writes,
        locked.modified as previous, locked.modified_place as previous_place
){{if .}}, logged as ({{end}}
insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
select revision, 0, false, 1, key, token, token, data, created, writes, previous, previous_place from written
returning token, revision, created, writes{{if .}}
{{template "settled"}}{{else}}, false{{end}}
