-- Fragments that several statements share. In all files, {{schema}} is the quoted schema, and {{name "x"}} is the qualified
-- name of x as a string literal. {{primary "x"}} is the value x on a primary, and an error on a standby; {{standby}} is whether the
-- server is a standby. A statement in a transaction that began with "read write" needs neither.

-- The highest number. A range without an upper end is estimated at a third of the table while Postgres has no statistics, and
-- a third is read by a sequential scan. A range with both ends uses the index.
{{define "never"}}9223372036854775807{{end}}

-- The fence, null in an open store.
{{define "fence"}}(select value from {{schema}}.journal where name = '~fence'){{end}}

-- Whether no pending writer has locked the row of a resource. Each writer locks the row for update before it draws a number. From then
-- until it ends, xmax is the id of its transaction, also for older snapshots: nobody else can lock the row, and the id is neither a
-- multixact nor a subtransaction. So no writer is pending if the transaction of this id has ended before the snapshot: it has only locked
-- the row, was rolled back, or has created this version. The first test, that the id is below all ids in progress, is fast. If xmax is
-- a multixact, no writer is pending, and the result does not matter. The template's argument is whether there are many rows. Then a subquery
-- reads the snapshot once, which takes longer for a single row.
{{define "clean" -}}
(resource.xmax = 0 or age(resource.xmax) > {{if .}}(select {{template "oldest_age"}}){{else}}{{template "oldest_age"}}{{end}} or {{schema}}.ended(resource.xmax))
{{- end}}
{{define "oldest_age"}}age(pg_snapshot_xmin(pg_current_snapshot())::xid){{end}}

-- The tip, for the base in three arguments from a given one on. The call proves the role of the server. A statement that proves it for each
-- answer, as with its keys, needs no further proof for the tip.
{{define "tip_from"}}{{schema}}.tip({{primary (printf "$%d::bigint" .)}}, ${{add . 1}}, ${{add . 2}}){{end}}
{{define "proven_tip_from"}}{{schema}}.tip(${{.}}, ${{add . 1}}, ${{add . 2}}){{end}}

-- The note of a writer: a shared advisory lock whose two keys are the log and the last number drawn. A writer takes its note before it draws
-- numbers, so all of its numbers are higher. Therefore the text that draws numbers selects from this one. No session of a store takes the
-- lock exclusively. But any role of the database may, so the wait for the lock is short: it must not occupy the sender's connections.
{{define "note" -}}
select case when set_config('lock_timeout', '100ms', true) is not null
    then pg_advisory_xact_lock_shared(({{name "changes"}}::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int)::text end as held
    from {{schema}}.changes_seq
{{- end}}

-- The note of a writer that does not wait, as a condition: it is false if the lock is not available at once, or if no number was drawn.
{{define "quick_note" -}}
pg_try_advisory_xact_lock_shared(({{name "changes"}}::regclass::oid::bigint & 2147483647)::int,
        (pg_sequence_last_value({{name "changes_seq"}}::regclass) & 2147483647)::int)
{{- end}}

-- Whether a statement may still start, by its time and, in the next argument, by the sender's floor (see update_one). The template's argument is
-- the number of the first.
{{define "in_time" -}}
clock_timestamp() < ${{.}} and pg_sequence_last_value({{name "changes_seq"}}::regclass) >= ${{add . 1}} and {{template "warned"}}
{{- end}}

-- The notes of other sessions below a number that this session has drawn. A session that may have drawn a lower number, and has
-- not committed, has held such a note since before. The argument names a column that holds the drawn number, so that the locks
-- are read after the draw. In the other order, a session could take its note and draw in between, unseen.
{{define "others" -}}
select from pg_locks
    where locktype = 'advisory' and objsubid = 2
      and classid::bigint = ({{name "changes"}}::regclass::oid::bigint & 2147483647)
      and database = (select oid from pg_database where datname = current_database())
      and pid is distinct from pg_backend_pid()
      and ((objid::bigint - {{.}} + 1073741824) & 2147483647) < 1073741824
{{- end}}

-- The end of a quick statement whose caller needs to know that no earlier change is pending. The statement begins its last part with
-- "logged as (", and leaves the rest to this text.
{{define "settled" -}}
), drawn as materialized (
    select max(revision) as last from logged
), alone as materialized (
    select not exists ({{template "others" "drawn.last"}}) as settled from drawn
)
select logged.*, alone.settled from logged cross join alone
{{- end}}

-- Makes a transaction send warnings, and is true. A commit that stops waiting for its standby raises a warning. Without a warning,
-- the sender considers the commit durable, so the session must not suppress it. The setting ends after the commit.
{{define "warned" -}}
case current_setting('client_min_messages') when 'error' then set_config('client_min_messages', 'warning', true) else '' end is not null
{{- end}}

-- The common part of the statements that change one resource. Their first arguments are the key, the uid, the expected version,
-- the token, the time after which the statement does nothing, whether to check for others, and the floor. The statements lock
-- the row, take the note, and draw the number, in this order: the text with the note refers to the locked row.
{{define "locked" -}}
(
        select ctid as tid, created, writes, modified, modified_place, case when modified is null then {{schema}}.created(key) end as head
        from {{schema}}.resources
        where key = $1 and uid = $2 and version = $3 and clock_timestamp() < $5 and (select last_value from {{schema}}.changes_seq) >= $7
          and {{template "warned"}}
        for update skip locked
    ) as locked
{{- end}}

-- The answer of the statements that change one resource.
{{define "answer" -}}
select logged.revision, stored.uid, stored.version,
    stored.uid = $2 and stored.version = $3 and (clock_timestamp() >= $5 or (select last_value from {{schema}}.changes_seq) < $7),
    logged.created, logged.writes, case when $6 then not exists ({{template "others" "logged.revision"}}) end
from (select 1) as one left join logged on true
left join lateral (select uid, version from {{schema}}.resources where key = $1 and logged.revision is null offset 0) as stored on true
{{- end}}

-- The changes that the index by key contains.
{{define "milestones"}}(op = 2 or writes % 16 = 1){{end}}

-- The only change of a locked resource that was not changed since its creation: its row lacks the numbers, the log has them.
-- The condition is inside, so that the index is not read for other resources.
{{define "head" -}}
left join lateral (
        select revision, place from {{schema}}.changes where locked.modified is null and key = locked.key and {{template "milestones"}} order by revision desc limit 1
    ) as head on true
{{- end}}

-- The keys of stored resources.
{{define "stored_keys"}}select key from {{schema}}.resources where key >= $1 and key < $2 order by key limit $3{{end}}

-- The keys of a stretch as of a position ($5, $6 and $7): the stored keys, and the keys of resources that existed at the position and were
-- deleted since, up to the last of the stored keys. A deletion contains the number of the creation, so there is one such deletion of a
-- key. The deletions since are in the last changes of the log. If these are more than $8, they are read from the index of deletions,
-- which contains all earlier deletions too.
{{define "past_keys" -}}
stored as materialized ({{template "stored_keys"}}), tail as materialized (
    select key, op, revision, created from {{schema}}.changes
    where (revision, place) > ($5::bigint, $6::int) and revision < {{template "never"}} order by revision, place limit $8::bigint + 1
), deleted as (
    select * from tail where (select count(*) from tail) <= $8
    union all
    select key, op, revision, created from {{schema}}.changes
    where (select count(*) from tail) > $8 and op = 2 and revision > $5
      and key >= $1 and key < coalesce((select key from stored order by key offset $3 - 1 limit 1), $2)
), past_keys as (
    select key from stored
    union
    select key from deleted
    where op = 2 and key >= $1 and key < $2 and not $7::text::int8multirange @> revision
      and (created <= $5 or $7::text::int8multirange @> created)
)
{{- end}}

-- The columns of a stored resource, from "resource" and "current_head".
{{define "current_row"}}
    select resource.key, resource.version, resource.data,
        coalesce(resource.created, head.revision) as created, coalesce(resource.writes, 1) as writes,
        coalesce(resource.modified, head.revision) as modified, coalesce(resource.modified_place, head.place) as place
{{- end}}

-- The log's numbers of a stored resource that was not changed since its creation.
{{define "current_head"}}
    left join lateral (
        select revision, place from {{schema}}.changes
        where resource.modified is null and key = resource.key and {{template "milestones"}} order by revision desc limit 1
    ) as head on true
{{- end}}

-- A stretch is a run of keys after a given key, stored or deleted. It is long enough to contain a page, and short enough that a
-- filter which skips most keys can be asked where to continue. The pattern picks some of its keys.
{{define "picked" -}}
picked as materialized (
    select key from stretch where $4::bytea is null or key like $4
)
{{- end}}

-- The picked keys as of a position: a change, up to which the position includes everything, and the ranges of numbers that it
-- includes above ($5, $6 and $7). Only keys that have changed since are searched for in the log. "offset 0" keeps Postgres from
-- searching before it tests the condition, and from joining the whole log. It also forces a lookup for each stored key: a
-- generic plan, which expects few keys, would join everything with everything.
{{define "as_of"}}
    select picked.key,
        case when current.key is null then change.version else current.version end as version,
        case when current.key is null then change.data else current.data end as data,
        coalesce(current.created, change.created) as created, coalesce(current.writes, change.writes) as writes,
        coalesce(current.modified, change.revision) as modified
    from picked
    left join lateral ({{template "current_row"}} from {{schema}}.resources resource{{template "current_head"}}
        where resource.key = picked.key offset 0
    ) as current on ((current.modified, current.place) <= ($5::bigint, $6::int) or $7::text::int8multirange @> current.modified)
    left join lateral (
        select earlier.* from {{schema}}.past(picked.key, $5, $6, $7::text::int8multirange) as earlier where current.key is null offset 0
    ) as found on true
    left join lateral (
        select * from {{schema}}.changes earlier where earlier.revision = found.revision and earlier.place = found.place offset 0
    ) as change on true
    where current.key is not null or change.revision is not null
{{- end}}

-- A page of versions in the order of keys, bounded by rows and by bytes. The first row has the end of the stretch and its number
-- of keys.
{{define "page_of"}}
select (select key from stretch order by key desc limit 1), null, null, (select count(*) from stretch), null, null
union all
select * from (
    select key, version, case when not $10 then data end, created, modified, writes
    from (
        select *, sum(octet_length(data)) over (order by key rows unbounded preceding) - octet_length(data) as before
        from (select * from versions order by key limit $9) as few
    ) as page
    where before < $11 or $10
    order by key
) as page
{{- end}}

-- The stored resources of a range, without a pattern: no key is skipped, and everything is read in the order of the index.
{{define "present_keys"}}select key, version, data, created, writes, modified from {{schema}}.resources where key >= $1 and key < $2 order by key limit $3{{end}}

-- The tip and the fence as the first row, and the rows of a list if the tip does not lack a number. The template's argument has the list, and the
-- number of its arguments, which precede the base of the tip.
{{define "strong_list" -}}
with proof as materialized (
    select {{template "tip_from" add .Arguments 1}} as tip
)
select null::bytea, tip, {{template "fence"}} from proof
union all
select listed.* from (select from proof where tip is null or get_byte(tip, 0) < 128 offset 0) as proven cross join lateral (
{{.List}}
offset 0) as listed
{{- end}}
