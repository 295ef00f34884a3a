-- A page as of a position.
with {{template "past_keys"}}, stretch as materialized (
    select key from past_keys order by key limit $3
), {{template "picked"}}, versions as ({{template "as_of"}}){{template "page_of"}}
