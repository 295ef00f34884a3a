-- The uid of a damaged resource, for its error.
select uid from {{schema}}.resources where key = {{primary "$1::bytea"}} and version = $2
