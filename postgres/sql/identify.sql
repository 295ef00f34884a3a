-- The uid of a damaged resource, for its error.
select uid from {{schema}}.resources where key = $1 and version = $2
