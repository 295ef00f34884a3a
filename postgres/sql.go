package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the SQL texts of one store. Names are qualified, never found through search_path, which a pooler does not
// keep.
type statements struct {
	about, mayIdentify, identify, lock, claim, renew, readOne, readMany, updateOne, updateMany, apply, removePlaceholders, tokens string
	readAfter, loadResources, logLoaded                                                                                           string
	list, owned, now, poll, changes                                                                                               string
	retentionLock, sinceMark, mark, dueMark, setHorizon, dropMarks, prune                                                         string
}

// never is above every transaction id. A range that is open at one end is taken for a third of the table as long as Postgres
// knows nothing about it, and a third is read by a scan of all; one that is closed at both ends goes through the index.
const never = "'9223372036854775807'::xid8"

func newStatements(schema string) statements {
	names := strings.NewReplacer(
		"$resources", pgx.Identifier{schema, "resources"}.Sanitize(),
		"$changes_name", "'"+strings.ReplaceAll(pgx.Identifier{schema, "changes"}.Sanitize(), "'", "''")+"'",
		"$changes_seq", "'"+strings.ReplaceAll(pgx.Identifier{schema, "changes_seq"}.Sanitize(), "'", "''")+"'",
		"$changes", pgx.Identifier{schema, "changes"}.Sanitize(),
		"$store", pgx.Identifier{schema, "store"}.Sanitize(),
		"$marks", pgx.Identifier{schema, "marks"}.Sanitize(),
		"$never", never,
	)
	sql := func(text string) string { return names.Replace(strings.TrimSpace(text)) }
	return statements{
		// origin names what transaction ids mean here: a dump that was restored elsewhere, or over, brings ids that mean nothing.
		about: sql(`
select id, origin, $1::text
       || '/' || (select oid from pg_database where datname = current_database())::text
       || '/' || $changes_name::regclass::oid::text, pg_current_snapshot()::text
from $store`),
		mayIdentify: sql(`select has_function_privilege('pg_catalog.pg_control_system()', 'execute')`),
		identify:    sql(`select system_identifier::text from pg_catalog.pg_control_system()`),
		lock:        sql(`select origin from $store for update`),
		claim:       sql(`update $store set origin = $1`),
		renew: sql(`
with emptied as (delete from $changes), forgotten as (delete from $marks)
update $store set id = gen_random_uuid(), origin = $1, horizon = null returning id`),

		readOne:  sql(`select version, data from $resources where key = $1`),
		readMany: sql(`select key, version, data from $resources where key = any($1)`),

		// One write of what exists. stored is what the statement's snapshot shows: what is replaced, or is in the way.
		updateOne: sql(`
with written as (
    update $resources set version = $4, group_version = $5, owner = $6, data = $7
    where key = $1 and uid = $2 and version = $3
      and (select set_config('lock_timeout', $8, true)) is not null
    returning nextval($changes_seq) as seq
), logged as (
    insert into $changes (seq, op, key, version, token, data)
    select seq, 1, $1, $4, $4, $7 from written
    returning xid, seq
)
select logged.xid, logged.seq, stored.uid, stored.version, stored.xmin
from (select 1) one left join logged on true left join $resources stored on stored.key = $1`),

		// Many writes of what exists, as apply does them, without what only the other operations need; there is no answer for
		// what is not stored. A locked row is found again by its place in the table. One that changed while the lock was waited
		// for has a place where this statement's snapshot sees nothing, so it is left alone.
		updateMany: sql(`
with stored as materialized (
    select input.*, locked.*
    from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
         with ordinality as input (key, uid, expected, token, group_version, owner, data, place),
         (select set_config('lock_timeout', $8, true)) as timeout
    cross join lateral (
        select uid as stored_uid, version as stored_version, xmin, ctid as tid
        from $resources resource where resource.key = input.key for update
    ) as locked
), updated as (
    update $resources resource
    set version = stored.token, group_version = stored.group_version, owner = stored.owner, data = stored.data
    from stored
    where resource.ctid = stored.tid and stored.stored_uid = stored.uid and stored.stored_version = stored.expected
    returning stored.place, nextval($changes_seq) as seq, stored.key, stored.token, stored.data
), logged as (
    insert into $changes (seq, op, key, version, token, data)
    select seq, 1, key, token, token, data from updated
    returning xid
)
select stored.place, updated.place is not null, stored_uid, stored_version, stored.xmin, updated.seq, (select xid from logged limit 1)
from stored left join updated using (place)`),

		// Many operations, each by itself: those that cannot be done say what is stored. Rows are locked in the order of
		// keys, in which the arrays come, so that two of these never wait for each other in a circle. The subquery with the
		// lock cannot be joined in any other way than row by row through the index.
		apply: sql(`
with input as materialized (
    select t.*
    from unnest($1::bytea[], $2::smallint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[])
         with ordinality as t (key, op, uid, expected, token, group_version, owner, data, place),
         (select set_config('lock_timeout', $9, true)) as timeout
), stored as materialized (
    select input.place, locked.*
    from input cross join lateral (
        select key, uid, version from $resources resource where resource.key = input.key for update
    ) as locked
), updated as (
    update $resources resource
    set version = input.token, group_version = input.group_version, owner = input.owner, data = input.data
    from input join stored using (place)
    where resource.key = input.key and input.op = 1 and stored.uid = input.uid and stored.version = input.expected
    returning input.place, nextval($changes_seq) as seq, resource.key, resource.version, resource.version as token, resource.data
), created as (
    insert into $resources as resource (key, uid, version, group_version, owner, data)
    select key, uid, token, group_version, owner, data
    from input
    where op in (1, 4) and expected is null and not exists (select from stored where stored.place = input.place)
    order by place
    on conflict (key) do nothing
    returning nextval($changes_seq) as seq, resource.key, resource.version, resource.version as token, resource.data
), deleted as (
    delete from $resources resource
    using input join stored using (place)
    where resource.key = input.key and input.op = 2 and stored.uid = input.uid and stored.version = input.expected
    returning input.place, nextval($changes_seq) as seq, resource.key, resource.version, input.token, resource.data
), done as (
    select place, 1 as op, seq, key, version, token, data from updated
    union all select input.place, input.op, seq, key, version, created.token, created.data from created join input using (key)
    union all select place, 2, seq, key, version, token, data from deleted
), logged as (
    insert into $changes (seq, op, key, version, token, data)
    select seq, op, key, version, token, data from done where op in (1, 2)
    returning xid
)
select input.place, done.place is not null, stored.uid, stored.version, null::xid, null::bigint, (select xid from logged limit 1)
from input left join done using (place) left join stored using (place)`),

		removePlaceholders: sql(`delete from $resources where version = any($2) and key = any($1)`),

		// Which of these tokens took effect, whatever happened since.
		tokens: sql(`
select version from $resources where key = any($1) and version = any($2)
union
select token from $changes where xid >= $3::text::xid8 and xid < $never and token = any($2)`),

		list: sql(`
select version, data from $resources
where key >= $1 and ($2::bytea is null or key < $2) and ($3::bytea is null or key like $3)
order by key`),

		// Rows in the order of keys until there are many, or they are large together.
		readAfter: sql(`
select key, version, data
from (
    select key, version, data, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from (select key, version, data from $resources where key > $1 order by key limit $2) as many
) as page
where before < $3`),
		loadResources: sql(`copy $resources (key, uid, version, group_version, owner, data) from stdin (format binary)`),
		logLoaded: sql(`
insert into $changes (seq, op, key, version, token, data)
select nextval($changes_seq), 1, key, version, version, data
from $resources
where key between $1 and $2 and xmin = pg_current_xact_id()::xid`),

		owned: sql(`select key, uid, group_version from $resources where owner = $1 order by key`),

		now: sql(`select pg_current_snapshot()::text, horizon, id from $store`),

		// What became visible since a snapshot: everything from its xmax on, and what was in flight. The first row is the
		// snapshot of this very statement.
		poll: sql(`
select pg_current_snapshot()::text, horizon, id, null::xid8, null::bigint, null::smallint, null::bytea, null::bytea, null::bytea
from $store
union all
(select null, null, null, xid, seq, op, key, version, data from $changes where xid >= $1::text::xid8 and xid < $never order by xid, seq limit $3)
union all
select null, null, null, change.*
from unnest($2::text[]::xid8[]) as transaction (id) cross join lateral (
    select xid, seq, op, key, version, data from $changes where xid = transaction.id order by xid, seq limit $3
) as change`),

		// What became visible between two snapshots, in order, after a place in that order.
		changes: sql(`
select null, horizon, id, null::xid8, null::bigint, null::smallint, null::bytea, null::bytea, null::bytea
from $store
union all
(select null, null, null, xid, seq, op, key, version, data from (
    select xid, seq, op, key, version, data from $changes where xid >= $1::text::xid8 and xid < $3::text::xid8
    union all
    select change.*
    from unnest($2::text[]::xid8[]) as transaction (id) cross join lateral (
        select xid, seq, op, key, version, data from $changes where xid = transaction.id and xid < $3::text::xid8
    ) as change
) as change
where seq > $5 and xid <> all($4::text[]::xid8[])
order by seq limit $6)`),

		// Retention. Snapshots are marked now and then; the newest mark that is old enough becomes the horizon, and what it
		// sees is deleted in steps, by the one who holds the lock.
		retentionLock: sql(`select pg_try_advisory_xact_lock(hashtextextended('ashlar retention ' || $1, 0))`),
		sinceMark:     sql(`select coalesce(extract(epoch from clock_timestamp() - max(taken)), 1e9)::float8 from $marks`),
		mark:          sql(`insert into $marks (snapshot) values (pg_current_snapshot()::text) on conflict do nothing`),
		dueMark: sql(`
select snapshot from $marks where taken < clock_timestamp() - make_interval(secs => $1) order by taken desc limit 1`),
		setHorizon: sql(`update $store set horizon = $1 where horizon is distinct from $1`),
		dropMarks:  sql(`delete from $marks where taken < (select max(taken) from $marks where snapshot = $1)`),
		prune: sql(`
delete from $changes where (xid, seq) in (
    select xid, seq from $changes where xid >= $1::text::xid8 and xid < $2::text::xid8 and xid <> all($3::text[]::xid8[]) order by xid, seq limit $4
)`),
	}
}
