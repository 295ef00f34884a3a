package postgres

// The statements that read the store as it was. A position is a change, up to which it includes all, and the ranges of the numbers that
// it includes ahead of others ($5, $6 and $7 here).
//
// A stretch is some keys after another one, of those that are stored and those that were deleted: so many that a page is among them, and
// so few that a filter which leaves out most of them can be asked where to go on. The keys that were deleted are found one by one in the
// index of deletions, however often each of them was deleted.

// stored are the keys of what is stored.
const stored = `select key from $resources where key >= $1 and key < $2 order by key limit $3`

// deleted are the keys of what was deleted, as far as the log remembers.
const deleted = `
    select key from (
        with recursive gone as (
            (select key from $changes where key >= $1 and key < $2 and op = 2 order by key limit 1)
            union all
            select (select change.key from $changes change where change.key > gone.key and change.key < $2 and change.op = 2 order by change.key limit 1)
            from gone where gone.key is not null
        ) select key from gone where key is not null limit $3
    ) as gone`

// currentRow is what is stored now, and currentHead what the log knows of what was never changed since it was created.
const (
	currentRow = `
    select resource.key, resource.version, resource.data,
        coalesce(resource.created, head.revision) as created, coalesce(resource.writes, 1) as writes,
        coalesce(resource.modified, head.revision) as modified, coalesce(resource.modified_place, head.place) as place`
	currentHead = `
    left join lateral (
        select revision, place from $changes
        where resource.modified is null and key = resource.key and $milestones order by revision desc limit 1
    ) as head on true`
)

// current is what is stored under picked keys now.
const current = currentRow + ` from picked join $resources resource using (key)` + currentHead

const included = `((current.modified, current.place) <= ($5::bigint, $6::int) or $7::text::int8multirange @> current.modified)`

// asOf is what a position includes of picked keys. Only of those that have changed since the past is searched for: "offset 0" keeps
// Postgres from searching first and asking then, and from reading all of the log to join it. It also has what is stored looked up key by
// key: a plan for any arguments, which expects few keys, would join all with all.
const asOf = `
    select picked.key,
        case when current.key is null then change.version else current.version end as version,
        case when current.key is null then change.data else current.data end as data,
        coalesce(current.created, change.created) as created, coalesce(current.writes, change.writes) as writes,
        coalesce(current.modified, change.revision) as modified
    from picked
    left join lateral (` + currentRow + ` from $resources resource` + currentHead + `
        where resource.key = picked.key offset 0
    ) as current on ` + included + `
    left join lateral (
        select earlier.* from $past(picked.key, $5, $6, $7::text::int8multirange) as earlier where current.key is null offset 0
    ) as found on true
    left join lateral (
        select * from $changes earlier where earlier.revision = found.revision and earlier.place = found.place offset 0
    ) as change on true
    where current.key is not null or change.revision is not null`

// page is what comes of versions: as many as are asked for, until they are large together, in the order of keys; and before them
// the end of the stretch and how many keys it has.
const pageOf = `
select (select key from stretch order by key desc limit 1), null, null, (select count(*) from stretch), null, null
union all
select * from (
    select key, version, case when not $9 then data end, created, modified, writes
    from (
        select *, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
        from (select * from versions order by key limit $8) as few
    ) as page
    where before < $10 or $9
    order by key
) as page`

const (
	picked = `picked as materialized (
    select key from stretch where $4::bytea is null or key like $4
)`
	presentPage = `
with stretch as materialized (` + stored + `), ` + picked + `, current as (` + current + `), versions as (
    select key, version, data, created, writes, modified from current
    where $5::bigint is not null and $6::int is not null and $7::text is not null
)` + pageOf
	// Without a pattern, no key is passed over, and all is read in the order of the index.
	presentSpan = `
select key, version, case when not $4 then data end, coalesce(created, head.revision), coalesce(modified, head.revision), coalesce(writes, 1)
from (
    select few.*, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from (` + presentFew + `) as few
) as resource` + currentHead + `
where before < $5 or $4
order by key`
	// Where bytes are not bounded, they need not be summed up, which takes longer than the rest.
	presentRows = `
select key, version, case when not $4 then data end, coalesce(created, head.revision), coalesce(modified, head.revision), coalesce(writes, 1)
from (` + presentFew + `) as resource` + currentHead + `
order by key`
	presentFew = `select key, version, data, created, writes, modified from $resources where key >= $1 and key < $2 order by key limit $3`

	pastPage = `
with stretch as materialized (
    select key from ((` + stored + `) union ` + deleted + `) as keys order by key limit $3
), ` + picked + `, versions as (` + asOf + `)` + pageOf

	presentCount = `
select count(*) from $resources where key >= $1 and key < $2 and ($3::bytea is null or key like $3)`

	// Whether nothing between two keys has changed after a change, as far as the log is looked through for that.
	unchanged = `
with since as materialized (
    select key from $changes where (revision, place) > ($3::bigint, $4::int) and revision < $never order by revision, place limit $5 + 1
)
select (select count(*) from since) <= $5 and not exists (select from since where key >= $1 and key < $2)`

	// How many there were at a change: as many as now, and what the first change of each key after it tells. Null where there were many
	// changes since.
	countSince = `
with since as materialized (
    select key, revision, place, previous from $changes
    where (revision, place) > ($4::bigint, $5::int) and revision < $never order by revision, place limit $6 + 1
), first as (
    select distinct on (key) key, previous is not null as there from since
    where key >= $1 and key < $2 and ($3::bytea is null or key like $3) order by key, revision, place
)
select case when (select count(*) from since) <= $6 then (` + presentCount + `) + (
    select count(*) filter (where first.there) - count(resource.key) from first left join $resources resource using (key)
) end`

	// All keys are one stretch.
	pastCount = `
with stretch as materialized ((` + stored + `) union ` + deleted + `), ` + picked + `
select count(*) from (` + asOf + `) as versions`

	// What the log has at a position, and whether its commit goes on there.
	placeAt = `
select id, oldest, change.revision is not null, change.more, substr(change.token, 1, 8)
from $store left join $changes change on change.revision = $1 and change.place = $2`

	// The last change up to a number, and whether there is one at or after it.
	numbered = `
select id, oldest, last.revision, last.place, substr(last.token, 1, 8),
    exists (select from $changes where revision >= $1 and revision < $never)
from $store left join lateral (
    select revision, place, token from $changes where revision > 0 and revision <= $1 order by revision desc, place desc limit 1
) as last on true`

	// What is stored under single keys now, the last change up to the number up to which the history is final, and whether there is one
	// after it: one statement, of one snapshot, after the statement finalNoted.
	look = `
with final as materialized (select current_setting('ashlar.final')::bigint as number)
select store.id, store.oldest, last.revision, last.place, last.piece,
    exists (select from $changes where revision > final.number and revision < $never), one.*
from final cross join $store as store
left join lateral (
    select revision, place, substr(token, 1, 8) as piece from $changes
    where revision > 0 and revision <= greatest(final.number, store.oldest) order by revision desc, place desc limit 1
) as last on true
left join (
    select one.* from unnest($1::bytea[]) as wanted (key)
    cross join lateral (` + currentRow + ` from $resources resource` + currentHead + ` where resource.key = wanted.key offset 0) as one
) as one on true`

	// Whether there is a change of a number, or after it.
	followed = `
select id, exists (select from $changes where revision >= $1 and revision < $never) from $store`

	// What changes followed.
	before = `
select input.n, store.id, store.oldest, substr(change.token, 1, 8), change.previous, earlier.version, earlier.data,
    earlier.created, earlier.revision, earlier.writes
from $store as store, unnest($1::bigint[], $2::int[]) with ordinality as input (revision, place, n)
left join lateral (
    select * from $changes change where change.revision = input.revision and change.place = input.place offset 0
) as change on true
left join lateral (
    select * from $changes earlier where earlier.revision = change.previous and earlier.place = change.previous_place offset 0
) as earlier on true`

	// The change is looked for once more, because the database may have become another one.
	compact = `
update $store set oldest = $1
where oldest < $1 and exists (select from $changes where revision = $1 and place = $2 and substr(token, 1, 8) = $3)`
)

type pastStatements struct {
	presentPage, presentSpan, presentRows, pastPage, presentCount, unchanged, countSince, pastCount, placeAt, numbered, look, followed, before, compact string
}

func newPastStatements(sql func(string) string) pastStatements {
	return pastStatements{
		presentPage: sql(presentPage), presentSpan: sql(presentSpan), presentRows: sql(presentRows), pastPage: sql(pastPage), presentCount: sql(presentCount), unchanged: sql(unchanged), countSince: sql(countSince), pastCount: sql(pastCount),
		placeAt: sql(placeAt), numbered: sql(numbered), look: sql(look), followed: sql(followed), before: sql(before), compact: sql(compact),
	}
}
