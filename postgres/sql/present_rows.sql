-- A page of the present, without a pattern, bounded by rows only. Adding up the bytes would take longer than the rest.
select key, version, case when not $4 then data end, coalesce(created, head.revision), coalesce(modified, head.revision), coalesce(writes, 1)
from ({{template "present_keys"}}) as resource{{template "current_head"}}
order by key
