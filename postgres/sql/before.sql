-- The predecessors of changes.
select input.n, store.id, store.oldest, substr(change.token, 1, 8), change.previous, earlier.version, earlier.data,
    earlier.created, earlier.revision, earlier.writes
from {{schema}}.store as store, unnest({{primary "$1::bigint[]"}}, $2::int[]) with ordinality as input (revision, place, n)
left join lateral (
    select * from {{schema}}.changes change where change.revision = input.revision and change.place = input.place offset 0
) as change on true
left join lateral (
    select * from {{schema}}.changes earlier where earlier.revision = change.previous and earlier.place = change.previous_place offset 0
) as earlier on true
