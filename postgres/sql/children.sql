-- The resources of an owner.
select key, uid, group_version from {{schema}}.resources where owner = {{primary "$1::bytea"}} order by key
