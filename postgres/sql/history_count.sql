-- The number of resources as of a position. All keys are one stretch.
with stretch as materialized (({{template "stored_keys"}}) union {{template "deleted_keys"}}), {{template "picked"}}
select count(*) from ({{template "as_of"}}) as versions
