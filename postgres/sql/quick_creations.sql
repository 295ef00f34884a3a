-- The second statement of creations. It creates the absent resources whose attempt was not revoked. The locks are held, the note is taken
-- before the first number, and each resource is inserted and logged before the next number is drawn. The rest is explained in quick_many.
with created as (
    insert into {{schema}}.resources (key, uid, version, group_version, owner, data, created, writes, modified, modified_place)
    select key, uid, token, group_version, owner, data, revision, 1, revision, 0
    from (
        select input.*, nextval({{name "changes_seq"}}) as revision
        from (
            select unnest((select $2::bytea[])) as key, unnest($3::bytea[]) as uid, unnest($4::bytea[]) as token,
                unnest($5::bytea[]) as group_version, unnest($6::bytea[]) as owner, unnest($7::bytea[]) as data
        ) as input
        where not exists (select from {{schema}}.resources resource where resource.key = input.key offset 0)
          and (select current_setting('ashlar.creating', true) = 'true' and not exists (select from {{schema}}.revoked where attempt = $1)
            and {{template "quick_note"}})
        offset 0
    ) as numbered
    on conflict (key) do nothing
    returning key, version, data, modified
){{if .}}, logged as ({{end}}
insert into {{schema}}.changes (revision, place, more, op, key, version, token, data, created, writes)
select modified, 0, false, 1, key, version, version, data, modified, 1 from created
returning token, revision, created, writes{{if .}}
{{template "settled"}}{{else}}, false{{end}}
