-- A page as of a position.
with stretch as materialized (
    select key from (({{template "stored_keys"}}) union {{template "deleted_keys"}}) as keys order by key limit $3
), {{template "picked"}}, versions as ({{template "as_of"}}){{template "page_of"}}
