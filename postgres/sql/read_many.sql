-- The resources of several keys, with their places among the keys, as in read_strong. The tip is read at most once. The subquery with the array
-- hides its length from the planner, as in update_many.
select wanted.place, stored.version, stored.data, case when stored.clean then null else (select {{template "proven_tip_from" 2}}) end, {{template "fence"}}
from unnest((select {{primary "$1::bytea[]"}})) with ordinality as wanted (key, place)
left join lateral (
    select version, data, {{template "clean" true}} as clean from {{schema}}.resources resource where resource.key = wanted.key offset 0
) as stored on true
