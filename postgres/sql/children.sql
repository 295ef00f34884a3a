-- The resources of an owner.
select key, uid, group_version from {{schema}}.resources where owner = $1 order by key
