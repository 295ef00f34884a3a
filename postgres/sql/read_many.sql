-- The resources of several keys.
select key, version, data from {{schema}}.resources where key = any($1)
