package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the SQL texts of one store. Names are qualified, never found through search_path, which a pooler does not
// keep.
type statements struct {
	names *strings.Replacer
	historyStatements
	listSteps [maxWildcards]string // by the number of wildcards that have something fixed after them, less one

	id, readOne, readMany, identify, updateOne, deleteOne, updateMany, apply string
	server, revoke, overdue, writers, tokens, lastNumber                     string
	list, ownedQuery, readAfter                                              string
	final, finalNoted, last, tokenPrefixQuery, tokensIn, changes             string
	retentionLock, mark, moveOldest, forget, step, prune, prunedQuery        string
}

// note takes the lock by which a statement tells readers that it is going to draw numbers, all of them above the one that was
// the last when it began. The numbers are drawn after it, which is why the text that draws them selects from it.
const note = `select pg_advisory_xact_lock_shared(($changes_name::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int)::text as held
    from $changes_seq`

// others are the notes of other sessions below a number that this one has drawn ($drawn). Who could have drawn a lower one, and has not
// committed yet, holds such a note from before. The text stands where $drawn is a column of a row, so that it is carried out after that
// was drawn: in the other order somebody could note and draw in between, unseen.
const others = `select from pg_locks
    where locktype = 'advisory' and objsubid = 2
      and classid::bigint = ($changes_name::regclass::oid::bigint & 2147483647)
      and database = (select oid from pg_database where datname = current_database())
      and pid is distinct from pg_backend_pid()
      and ((objid::bigint - $drawn + 1073741824) & 2147483647) < 1073741824`

// final is the last number drawn, and then the lowest one that somebody noted who has not committed yet. The subquery refers to the outer
// row, so it is carried out after that was read; in the other order numbers could be drawn unseen in between. A note holds the lower 31
// bits of its number, which is near the last one.
const final = `
select last_value, (
    select min(last_value + ((objid::bigint - last_value + 1073741824) & 2147483647) - 1073741824)
    from pg_locks
    where locktype = 'advisory' and objsubid = 2
      and classid::bigint = ($changes_name::regclass::oid::bigint & 2147483647)
      and database = (select oid from pg_database where datname = current_database())
), pg_is_in_recovery()
from $changes_seq`

// What the statements that change one resource have in common, and with it their first arguments: the key, the uid, the version that is
// expected, the token, the time by which the statement begins or does nothing, whether to look for others, and the floor. They lock the
// row, then note, then draw: what has the note in it is carried out when the row is at hand that was locked.
const (
	lockedRows = `(
        select ctid as tid, created, writes, modified, modified_place, case when modified is null then $created(key) end as head
        from $resources
        where key = $1 and uid = $2 and version = $3 and clock_timestamp() < $5 and (select last_value from $changes_seq) >= $7
        for update skip locked
    ) as locked`
	answer = `
select logged.revision, stored.uid, stored.version,
    stored.uid = $2 and stored.version = $3 and (clock_timestamp() >= $5 or (select last_value from $changes_seq) < $7),
    logged.created, logged.writes, case when $6 then not exists ($others_logged) end
from (select 1) as one left join logged on true
left join lateral (select uid, version from $resources where key = $1 and logged.revision is null offset 0) as stored on true`
)

// milestones are the changes that the index by key holds.
const milestones = `(op = 2 or writes % 16 = 1)`

// head is the one change there was of a resource that was locked and was never changed since it was created: the log has the numbers
// that its row lacks. The condition stands inside, where the index is not touched for others.
const head = `left join lateral (
        select revision, place from $changes where locked.modified is null and key = locked.key and ` + milestones + ` order by revision desc limit 1
    ) as head on true`

// counted says of a resource that is changed of which life it is, and how often it was changed; previous which change that follows.
const (
	countedColumns = `created = coalesce(locked.created, head.revision), writes = coalesce(locked.writes, 1) + 1, modified_place = 0`
	previous       = `coalesce(locked.modified, head.revision) as previous, coalesce(locked.modified_place, head.place) as previous_place`
)

// A range that is open at one end is taken for a third of the table as long as Postgres knows nothing about it, and a third is
// read by a scan of all; one that is closed at both ends goes through the index.
const never = "9223372036854775807"

// withNames puts the names of the store's tables into a text.
func (s *statements) withNames(text string) string { return s.names.Replace(text) }

func newStatements(schema string) *statements {
	quoted := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	literal := func(name string) string { return "'" + strings.ReplaceAll(quoted(name), "'", "''") + "'" }
	names := strings.NewReplacer(
		"$resources_name", literal("resources"), "$changes_name", literal("changes"), "$seq_name", literal("changes_seq"), "$changes_seq", quoted("changes_seq"),
		"$resources", quoted("resources"), "$store", quoted("store"), "$marks", quoted("marks"), "$revoked", quoted("revoked"), "$apply", quoted("apply"), "$past", quoted("past"),
		"$created", quoted("created"),
		"$changes", quoted("changes"), "$journal", quoted("journal"), "$fence", quoted("fence"), "$never", never,
	)
	one := strings.NewReplacer("$locked", lockedRows, "$answer", answer)
	parts := strings.NewReplacer("$note", note, "$others_logged", strings.ReplaceAll(others, "$drawn", "logged.revision"),
		"$others_drawn", strings.ReplaceAll(others, "$drawn", "drawn.last"), "$head", head, "$counted", countedColumns, "$previous", previous, "$milestones", milestones)
	sql := func(text string) string {
		return names.Replace(parts.Replace(one.Replace(strings.TrimSpace(text))))
	}
	return &statements{
		names:             names,
		historyStatements: newHistoryStatements(sql),

		id: sql(`select id, pg_is_in_recovery() from $store`),

		readOne:  sql(`select version, data from $resources where key = $1`),
		readMany: sql(`select key, version, data from $resources where key = any($1)`),
		identify: sql(`select uid from $resources where key = $1 and version = $2`),

		// One write of what exists. A row that somebody else holds is passed over, as below: a time to wait for it would have to be set by
		// every write. stored is what is in the way, as the statement's snapshot shows it.
		//
		// This statement and the next three do nothing where the last number drawn is below the sender's floor: theirs would not be
		// found above it, should the answer be lost. That is so in a database that a fail-over or a restore has put there.
		updateOne: sql(`
with written as (
    update $resources resource
    set version = $4, group_version = $8, owner = $9, data = $10,
        created = coalesce(locked.created, locked.head[1]), writes = coalesce(locked.writes, 1) + 1, modified_place = 0,
        modified = (select nextval($seq_name) from ($note offset 0) as note where note.held is not null)
    from $locked
    where resource.ctid = locked.tid
    returning resource.modified as revision, resource.created, resource.writes,
        coalesce(locked.modified, locked.head[1]) as previous, coalesce(locked.modified_place, locked.head[2]) as previous_place
), logged as (
    insert into $changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
    select revision, 0, false, 1, $1, $4, $4, $10, created, writes, previous, previous_place from written
    returning revision, created, writes
)
$answer`),

		// One deletion. Its change holds the version and the data of what was deleted, and the number of writes before it.
		deleteOne: sql(`
with deleted as (
    delete from $resources resource
    using $locked cross join lateral (select note.held from ($note offset 0) as note where locked.tid is not null offset 0) as noted
    where resource.ctid = locked.tid and noted.held is not null
    returning resource.version, resource.data, nextval($seq_name) as revision,
        coalesce(locked.created, locked.head[1]) as created, coalesce(locked.writes, 1) as writes,
        coalesce(locked.modified, locked.head[1]) as previous, coalesce(locked.modified_place, locked.head[2]) as previous_place
), logged as (
    insert into $changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
    select revision, 0, false, 2, $1, version, $4, data, coalesce(created, revision), writes, previous, previous_place from deleted
    returning revision, created, writes
)
$answer`),

		// Many writes of what exists, each by itself. Rows that others hold are passed over, not waited for, and so are those that
		// changed since the statement's snapshot: their place in the table (ctid) is one where it sees nothing. Both are answered as
		// stored, but neither read nor written. The subquery with the lock cannot be joined in any other way than row by row
		// through the index. The one with the time is carried out once, so that all of the writes are late, or none.
		updateMany: sql(`
with input as materialized (
    select *
    from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
        with ordinality as input (key, uid, expected, token, group_version, owner, data, place)
    where (select clock_timestamp()) < $8 and (select last_value from $changes_seq) >= $10
), stored as materialized (
    select input.*, locked.*
    from input cross join lateral (
        select uid as stored_uid, version as stored_version, ctid as tid, created, writes, modified, modified_place
        from $resources resource where resource.key = input.key for update skip locked
    ) as locked
), note as materialized (
    $note, (select count(*) as many from stored where stored_uid = uid and stored_version = expected) as matching
    where many > 0
), updated as (
    update $resources resource
    set version = locked.token, group_version = locked.group_version, owner = locked.owner, data = locked.data, $counted,
        modified = nextval($seq_name)
    from note cross join stored as locked $head
    where resource.ctid = locked.tid and locked.stored_uid = locked.uid and locked.stored_version = locked.expected
      and note.held is not null
    returning locked.place, resource.modified as revision, locked.key, locked.token, locked.data,
        resource.created, resource.writes, $previous
), logged as (
    insert into $changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
    select revision, 0, false, 1, key, token, token, data, created, writes, previous, previous_place from updated
), drawn as materialized (
    select max(revision) as last from updated
), alone as materialized (
    select case when $9 then not exists ($others_drawn) end as settled from drawn
)
select input.place, stored.stored_uid, stored.stored_version, updated.revision,
    stored.place is null and exists (select from $resources resource where resource.key = input.key),
    updated.created, updated.writes, alone.settled
from input left join stored using (place) left join updated using (place) cross join alone`),

		// The numbers are drawn when the function has returned, and before the notes of others are read.
		apply: sql(`
with applied as materialized (
    select place, outcome, stored_uid, stored_version, revision, rank, created, writes
    from (select 1 as one from $changes_seq where last_value >= $15 offset 0) as reached
    cross join lateral $apply($1::bigint * one, $2, $3,
        $4::bytea[], $5::smallint[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12, $13)
), drawn as materialized (
    select max(revision) as last from applied
), alone as materialized (
    select case when $14 then not exists ($others_drawn) end as settled from drawn
)
select applied.*, alone.settled from applied cross join alone`),

		// What a new connection learns about its server.
		server: sql(`select last_value, clock_timestamp(), pg_backend_pid() from $changes_seq`),

		// Revokes an attempt, unless it holds its lock: then it runs, and may still take effect. An attempt looks at what was revoked
		// after it has its lock, which this statement holds until it is committed. It writes also where the attempt is revoked
		// already, so that its commit waits for the standbys: the one before may not have.
		revoke: sql(`
with free as materialized (
    select pg_try_advisory_xact_lock($1) as held
), noted as (
    insert into $revoked (attempt) select $1 from free where held
    on conflict (attempt) do update set taken = clock_timestamp()
)
select held from free`),

		// Whether the time of an attempt without a lock of its own is over. One that begins later finds out by the same clock.
		overdue: sql(`select clock_timestamp() > $1`),

		// The transactions that write to the resources; those of them that still do.
		writers: sql(`
select coalesce(array_agg(virtualtransaction), '{}') from pg_locks
where locktype = 'relation' and relation = $resources_name::regclass and mode = 'RowExclusiveLock'
  and database = (select oid from pg_database where datname = current_database())
  and ($1::text[] is null or virtualtransaction = any($1))`),

		// Which of these tokens took effect, whatever happened since. Visible is not yet durable: a commit that waited for its
		// standby in vain is visible too. What this statement itself writes to the server's log comes after that commit, and its
		// own commit waits for the same standbys. What is superfluous stays a while when the oldest change has moved; all that is
		// deleted is before pruned.
		tokens: sql(`
with found as materialized (
    select version as token, coalesce(modified, (
        select revision from $changes as change where change.key = stored.key and $milestones order by revision desc limit 1
    )) as revision
    from $resources as stored where key = any($1) and version = any($2)
    union
    select token, revision from $changes where revision > $3 and revision < $never and token = any($2)
)
select pruned, token, revision, case when token is not null then pg_logical_emit_message(true, 'ashlar', '')::text end
from $store left join found on true`),

		list:      sql(listExact),
		listSteps: [maxWildcards]string{newListSteps(1, sql), newListSteps(2, sql), newListSteps(3, sql), newListSteps(4, sql)},

		// Rows in the order of keys until there are many, or they are large together.
		readAfter: sql(`
select key, version, data
from (
    select key, version, data, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from (select key, version, data from $resources where key > $1 order by key limit $2) as many
) as page
where before < $3`),

		ownedQuery: sql(`select key, uid, group_version from $resources where owner = $1 order by key`),

		lastNumber: sql(`select last_value from $changes_seq`),

		final: sql(final),

		// The same, and the number up to which the history is final is left for the next statement of the transaction.
		finalNoted: sql(`
select last, noted, standby, set_config('ashlar.final', least(last, noted)::text, true) from (` + final + ` offset 0) as final (last, noted, standby)`),

		// The last change up to a number.
		last: sql(`
select id, oldest, revision, place, substr(token, 1, 8)
from $store as store left join lateral (
    select revision, place, token from $changes where revision > 0 and revision <= greatest($1, store.oldest)
    order by revision desc, place desc limit 1
) as last on true`),

		tokenPrefixQuery: sql(`select (select substr(token, 1, 8) from $changes where revision = $1 and place = $2)`),

		// The changes in a range of numbers that are visible.
		tokensIn: sql(`select revision, token from $changes where revision between $1 and $2 order by revision, place limit $3`),

		// What comes after a change, in order, until it is many rows or many bytes; before it a row about the store, about whether
		// that very change is there, and whether the server is a standby, which may not have it yet.
		changes: sql(`
select id, oldest, (select substr(token, 1, 8) from $changes where revision = $1 and place = $2),
    null::bigint, null::int, pg_is_in_recovery(), null::smallint, null::bytea, null::bytea, null::bytea, null::bytea, null::bigint, null::bigint
from $store
union all
select null, null, null, revision, place, more, op, key, version, substr(token, 1, 8), data, created, writes
from (
    select *, sum(octet_length(data)) over (order by revision, place rows unbounded preceding) - octet_length(data) as before
    from (
        select * from $changes
        where (revision, place) > ($1, $2) and revision < $never order by revision, place limit $3
    ) as many
) as page
where before < $4`),

		// Retention. The last change is marked now and then; the newest mark that is old enough becomes the oldest change at which the
		// store can be read, and what the changes before it made superfluous is deleted in steps, by the one who holds the lock. The
		// change itself stays: positions at it prove themselves by it.
		//
		// Between two of these statements the database may become another one, by a fail-over or a restore. So a change is marked
		// only where it is, and what is deleted is before the oldest change that the database has.
		retentionLock: sql(`select pg_try_advisory_xact_lock(hashtextextended('ashlar retention ' || $1, 0))`),
		mark: sql(`
insert into $marks (revision)
select $1::bigint
where not exists (select from $marks where taken > clock_timestamp() - make_interval(secs => $2))
  and exists (select from $changes where revision = $1)
on conflict do nothing`),
		// The newest due mark stays until a newer one is due. Others may bear the same number, where nothing changes any more.
		moveOldest: sql(`
with due as materialized (
    select revision, taken from $marks where taken < clock_timestamp() - make_interval(secs => $1) order by taken desc limit 1
), moved as (
    update $store set oldest = due.revision from due where oldest < due.revision
), dropped as (
    delete from $marks as mark using due where mark.taken < due.taken
)
select revision from due`),
		// An attempt that is this late is held back by its time, unless the clock has stepped back by as much.
		forget: sql(`delete from $revoked where taken < clock_timestamp() - interval '1 day'`),
		// One step goes through some changes: each makes the one before it superfluous, and a deletion itself too; the last change
		// of what is still stored is left.
		step: sql(`
select pruned, oldest, (
    select max(revision) from (select revision from $changes where revision between pruned and oldest order by revision limit $1) as few
)
from $store for update`),
		prune: sql(`
delete from $changes where ctid = any (array(
    select earlier.ctid
    from $changes change cross join lateral (
        select ctid from $changes where revision = change.previous and place = change.previous_place offset 0
    ) as earlier
    where change.revision between $1 and $2
    union all
    select ctid from $changes where revision between $1 and $2 and revision < $3 and op = 2
))`),
		prunedQuery: sql(`update $store set pruned = least($1::bigint + 1, oldest) where pruned <= $1`),
	}
}

// The statements that list what is stored now, from one snapshot, row by row as they are read.
//
// A filter whose wildcards have something fixed after them leaves out keys between those that it matches. Its list goes over the keys in
// steps: each looks at some keys. If the last one matches, the rows that are read reach to the end of its run of matching keys;
// otherwise the next step begins where a match may be, as driver.Filter.Seek says. So a run of keys that are left out costs a step, and
// short ones cost no more than to walk over them.

// listExact lists the keys of a range.
const listExact = `
select key, version, data from $resources
where key >= $1 and ($2::bytea is null or key < $2) and ($3::bytea is null or key like $3)
order by key`

// listSteps has, in place of $levels, $seek and $end, what depends on the number of wildcards. Steps come one after another, and rows are
// looked up step by step: sorting them too would hold all of them.
const listSteps = `
with recursive step as (
    select null::bytea as first, null::bytea as upto, $1::bytea as next
    union all
    select step.next,
        case when last is null then case when matches then $2::bytea end
            when last like $3 then $end
            when matches then last || '\x00'::bytea end,
        case when last is not null then greatest($seek, last || '\x00'::bytea) end
    from step cross join lateral (
        select (array_agg(key order by key))[$many] as last, bool_or(key like $3) as matches
        from (select key from $resources where key >= step.next and key < $2 order by key limit $many) as few
    ) as seen
    $levels
    where step.next is not null
)
select found.key, found.version, found.data
from step cross join lateral (
    select key, version, data from $resources where key >= step.first and key < step.upto and key like $3 order by key offset 0
) as found
where step.upto is not null`

// stepKeys is how many keys a step looks at: a look-up by key costs as much as a few of them.
const stepKeys = "16"

// maxWildcards is the number of parts of a key that may be wildcards.
const maxWildcards = 4

// newListSteps returns the statement for so many wildcards. After $3 each has an argument, the fixed text between it and the next
// one; the last argument is what comes after all texts that begin with the last of those.
func newListSteps(wildcards int, sql func(string) string) string {
	var levels strings.Builder
	seek := fmt.Sprintf(`substr(last, 1, part%d.ends - 1) || '\x01'::bytea`, wildcards)
	begins := `octet_length($1::bytea)`
	for i := 1; i <= wildcards; i++ {
		// Where the part ends that the wildcard stands for.
		fmt.Fprintf(&levels, `cross join lateral (
        select %[1]s + position('\x00'::bytea in substr(last, %[1]s + 1)) as ends offset 0
    ) as part%[2]d `, begins, i)
		begins = fmt.Sprintf(`part%d.ends + octet_length($%d::bytea)`, i, 3+i)
	}
	for i := wildcards; i >= 1; i-- {
		seek = fmt.Sprintf(`case when substr(last, part%[1]d.ends + 1, octet_length($%[2]d::bytea)) = $%[2]d::bytea then %[3]s
            when substr(last, part%[1]d.ends + 1, octet_length($%[2]d::bytea)) < $%[2]d::bytea
                then substr(last, 1, part%[1]d.ends) || $%[2]d::bytea
            else substr(last, 1, part%[1]d.ends - 1) || '\x01'::bytea end`, i, 3+i, seek)
	}
	end := fmt.Sprintf(`substr(last, 1, part%d.ends) || $%d::bytea`, wildcards, 4+wildcards)
	return sql(strings.NewReplacer("$many", stepKeys, "$seek", seek, "$end", end, "$levels", levels.String()).Replace(listSteps))
}

// The statements that read the store as it was. A position is a change, up to which it includes all, and the ranges of the numbers that
// it includes ahead of others ($5, $6 and $7 here).
//
// A stretch is some keys after another one, of those that are stored and those that were deleted: so many that a page is among them, and
// so few that a filter which leaves out most of them can be asked where to go on. The keys that were deleted are found one by one in the
// index of deletions, however often each of them was deleted.

// storedKeys selects the keys of stored resources.
const storedKeys = `select key from $resources where key >= $1 and key < $2 order by key limit $3`

// deletedKeys selects the keys of deletions that the log still contains.
const deletedKeys = `
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

const includedRows = `((current.modified, current.place) <= ($5::bigint, $6::int) or $7::text::int8multirange @> current.modified)`

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
    ) as current on ` + includedRows + `
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
	pickedRows = `picked as materialized (
    select key from stretch where $4::bytea is null or key like $4
)`
	presentPage = `
with stretch as materialized (` + storedKeys + `), ` + pickedRows + `, current as (` + current + `), versions as (
    select key, version, data, created, writes, modified from current
    where $5::bigint is not null and $6::int is not null and $7::text is not null
)` + pageOf
	// Without a pattern, no key is passed over, and all is read in the order of the index.
	presentRange = `
select key, version, case when not $4 then data end, coalesce(created, head.revision), coalesce(modified, head.revision), coalesce(writes, 1)
from (
    select few.*, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
    from (` + presentKeys + `) as few
) as resource` + currentHead + `
where before < $5 or $4
order by key`
	// Where bytes are not bounded, they need not be summed up, which takes longer than the rest.
	presentRows = `
select key, version, case when not $4 then data end, coalesce(created, head.revision), coalesce(modified, head.revision), coalesce(writes, 1)
from (` + presentKeys + `) as resource` + currentHead + `
order by key`
	presentKeys = `select key, version, data, created, writes, modified from $resources where key >= $1 and key < $2 order by key limit $3`

	historyPage = `
with stretch as materialized (
    select key from ((` + storedKeys + `) union ` + deletedKeys + `) as keys order by key limit $3
), ` + pickedRows + `, versions as (` + asOf + `)` + pageOf

	presentCount = `
select count(*) from $resources where key >= $1 and key < $2 and ($3::bytea is null or key like $3)`

	// Whether nothing between two keys has changed after a change, as far as the log is looked through for that.
	unchangedQuery = `
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
	historyCount = `
with stretch as materialized ((` + storedKeys + `) union ` + deletedKeys + `), ` + pickedRows + `
select count(*) from (` + asOf + `) as versions`

	// What the log has at a position, and whether its commit goes on there.
	changeAt = `
select id, oldest, change.revision is not null, change.more, substr(change.token, 1, 8)
from $store left join $changes change on change.revision = $1 and change.place = $2`

	// The last change up to a number, and whether there is one at or after it.
	revisionQuery = `
select id, oldest, last.revision, last.place, substr(last.token, 1, 8),
    exists (select from $changes where revision >= $1 and revision < $never)
from $store left join lateral (
    select revision, place, token from $changes where revision > 0 and revision <= $1 order by revision desc, place desc limit 1
) as last on true`

	// What is stored under single keys now, the last change up to the number up to which the history is final, and whether there is one
	// after it: one statement, of one snapshot, after the statement finalNoted.
	keyQuery = `
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
	followedQuery = `
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

type historyStatements struct {
	presentPage, presentRange, presentRows, historyPage, presentCount, unchangedQuery, countSince, historyCount, changeAt, revisionQuery, keyQuery, followedQuery, before, compact string
}

func newHistoryStatements(sql func(string) string) historyStatements {
	return historyStatements{
		presentPage: sql(presentPage), presentRange: sql(presentRange), presentRows: sql(presentRows), historyPage: sql(historyPage), presentCount: sql(presentCount), unchangedQuery: sql(unchangedQuery), countSince: sql(countSince), historyCount: sql(historyCount),
		changeAt: sql(changeAt), revisionQuery: sql(revisionQuery), keyQuery: sql(keyQuery), followedQuery: sql(followedQuery), before: sql(before), compact: sql(compact),
	}
}
