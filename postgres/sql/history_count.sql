-- The number of resources as of a position. All keys are one stretch.
with {{template "past_keys"}}, stretch as materialized (select key from past_keys), {{template "picked"}}
select count(*) from ({{template "as_of"}}) as versions
