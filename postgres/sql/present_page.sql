-- A page of the present, with a pattern. $5 to $8 have a type here, and no effect.
with stretch as materialized ({{template "stored_keys"}}), {{template "picked"}}, current as ({{template "current_row"}} from picked join {{schema}}.resources resource using (key){{template "current_head"}}), versions as (
    select key, version, data, created, writes, modified from current
    where $5::bigint is not null and $6::int is not null and $7::text is not null and $8::bigint is not null
){{template "page_of"}}
