-- A page of the present, without a pattern, bounded by rows and by bytes.
select key, version, case when not $4 then data end, coalesce(created, head.revision), coalesce(modified, head.revision), coalesce(writes, 1)
from (
    select few.*, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from ({{template "present_keys"}}) as few
) as resource{{template "current_head"}}
where before < $5 or $4
order by key
