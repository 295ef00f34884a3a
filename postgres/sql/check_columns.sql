-- Rows in the order of keys, bounded by rows and by bytes, with their columns, and with whether the log agrees with them. The log has the
-- last change of each stored resource, however old. It is the creation if the row has no numbers.
select key, uid, group_version, owner, data, agrees
from (
    select resource.key, uid, group_version, owner, resource.data,
        coalesce((
            select change.op = 1 and change.key = resource.key and change.version = resource.version
                and case when modified is null then change.writes = 1 and num_nulls(resource.created, resource.writes, modified_place) = 3
                    else change.created = resource.created and change.writes = resource.writes end
            from {{schema}}.changes change
            where change.revision = coalesce(modified, head[1]) and change.place = coalesce(modified_place, head[2])
        ), false) as agrees,
        sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from (
        select *, case when modified is null then {{schema}}.created(key) end as head
        from {{schema}}.resources where key > {{primary "$1::bytea"}} order by key limit $2
    ) as resource
) as page
where before < $3
