-- The stored resources of single keys, the last change of the final history, whether a later change exists, and the fence. It is one
-- statement, so it has one snapshot, and it follows the statement save_final.
with final as materialized (select current_setting('ashlar.final')::bigint as number)
select store.id, store.oldest, last.revision, last.place, last.piece,
    exists (select from {{schema}}.changes where revision > final.number and revision < {{template "never"}}), {{template "fence"}}, one.*
from final cross join {{schema}}.store as store
left join lateral (
    select revision, place, substr(token, 1, 8) as piece from {{schema}}.changes
    where revision > 0 and revision <= greatest(final.number, store.oldest) order by revision desc, place desc limit 1
) as last on true
left join (
    select one.* from unnest($1::bytea[]) as wanted (key)
    cross join lateral ({{template "current_row"}} from {{schema}}.resources resource{{template "current_head"}} where resource.key = wanted.key offset 0) as one
) as one on true
