-- Rows in the order of keys, bounded by rows and by bytes, with their columns, and with whether the log agrees with them. The log has the
-- last change of each row that has changed since its creation and since the horizon.
select key, uid, group_version, owner, data, agrees
from (
    select resource.key, uid, group_version, owner, resource.data,
        modified is null or coalesce(
            (select change.op = 1 and change.key = resource.key and change.version = resource.version
                and change.created = resource.created and change.writes = resource.writes
             from {{schema}}.changes change where change.revision = modified and change.place = modified_place),
            modified < (select oldest from {{schema}}.store)) as agrees,
        sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from (select * from {{schema}}.resources where key > {{primary "$1::bytea"}} order by key limit $2) as resource
) as page
where before < $3
