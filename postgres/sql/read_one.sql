-- The resource of a key.
select version, data from {{schema}}.resources where key = {{primary "$1::bytea"}}
