-- A store: its resources, and the log of their changes.
--
-- Keys are bytes (the parts of a key, joined by NUL), so that their order is the order of the contract under any collation of the
-- database. Uids and group versions are bytes too, so that the encoding of the database does not matter.

-- A row for each applied step, with the version that the step leads to.
create table {{.schema}}.schema_version (
    version  int primary key,
    checksum text not null -- SHA-256 of the text of the step
);

create table {{.schema}}.store (
    only_row boolean primary key default true check (only_row),
    id       uuid not null default gen_random_uuid(), -- part of every cursor
    oldest   bigint not null default 0, -- changes before this number may be deleted; 0: none is
    pruned   bigint not null default 0  -- the changes that those before this number made superfluous are deleted
);
insert into {{.schema}}.store default values;

-- The last four columns are null for a resource that was created without numbers and has not changed since: then the log contains
-- them, and the row need not be written twice.
create table {{.schema}}.resources (
    key            bytea primary key,
    uid            bytea not null,
    version        bytea not null, -- 16 random bytes, new with every write
    group_version  bytea not null,
    owner          bytea,          -- hash of the owner's key and uid
    data           bytea not null, -- the resource without its version
    created        bigint,         -- number of the change that created the resource
    writes         bigint,         -- number of changes since, including the creation
    modified       bigint,         -- number of the last change
    modified_place int
);
create index resources_owner on {{.schema}}.resources (owner) where owner is not null;

-- Changes have numbers, in one order. A writer first takes its note of the last number drawn, as an advisory lock that it holds until
-- its commit is visible, and then draws its own numbers. So all numbers below all notes are final. Transaction ids and snapshots are
-- no positions: after a crash, the server reuses ids.
create sequence {{.schema}}.changes_seq;
-- From now on, last_value is the last number drawn, and never the first one to be drawn.
select setval('{{.sequence}}', 1, true);

create table {{.schema}}.changes (
    revision       bigint   not null, -- drawn while the resources of the commit are locked
    created        bigint   not null, -- number of the change that created the resource
    writes         bigint   not null, -- number of changes since, including the creation; of a delete, as of the deleted version
    previous       bigint,            -- the previous change of the same resource; null for a creation
    previous_place int,
    place          int      not null, -- among the changes of one commit, from 0
    op             smallint not null, -- 1 written, 2 deleted
    more           boolean  not null, -- the next place belongs to the same commit
    key            bytea    not null,
    version        bytea    not null, -- of the resource in data
    token          bytea    not null, -- of the call that made the change: its new version, or the delete's own token
    data           bytea    not null, -- the written resource; of a delete, the deleted one
    primary key (revision, place)
);
-- An index of all changes by key would cost a tenth of the rate of writes. This one contains the ends of a resource's life, and
-- every sixteenth change in between. From the next indexed change, the function past goes back to any other one.
create index changes_key on {{.schema}}.changes (key, revision) where op = 2 or writes % 16 = 1;
create index changes_deleted on {{.schema}}.changes (key, revision) where op = 2;

-- Values of some kilobytes stay in the row: moving them out of line halves the rate of writes. Updates find space in their own page,
-- and change no index. Both tables are vacuumed early and without pauses. The log's thresholds are absolute numbers, because a
-- share of a large table is a lot of dead rows.
alter table {{.schema}}.resources alter column data set storage main;
alter table {{.schema}}.resources set (
    fillfactor = 80,
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
alter table {{.schema}}.changes alter column data set storage main;
alter table {{.schema}}.changes set (
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- Numbers with their time: the values of store.oldest to come.
create table {{.schema}}.marks (
    taken    timestamptz primary key default clock_timestamp(),
    revision bigint not null -- number of the last change at that time
);

-- Notes of the tool that moves a store's data to another one. The note "~fence" contains the target; while it exists, a trigger
-- refuses writes. The trigger is created on demand, so that it costs nothing before.
create table {{.schema}}.journal (
    name     text  primary key,
    revision uuid  not null default gen_random_uuid(),
    value    bytea not null
);

-- An attempt whose answer was lost is revoked before its sender continues: if it arrives later, however late, it does nothing. Its
-- time limit alone does not stop it, because the server's clock may step back.
create table {{.schema}}.revoked (
    attempt bigint primary key, -- the key of the lock that the attempt holds while it runs
    taken   timestamptz not null default clock_timestamp()
);

-- past returns the last change of a key that a position includes, if that change is a write, and otherwise nothing. The position
-- includes all changes up to one, and the changes whose numbers are in ahead.
create function {{.schema}}.past(
    sought bytea, at_revision bigint, at_place int, ahead int8multirange, out revision bigint, out place int
) language plpgsql stable as $body$
#variable_conflict use_column
begin
    -- The first indexed change after the position.
    select change.revision, change.place into past.revision, past.place from {{.schema}}.changes change
    where change.key = sought and (change.op = 2 or change.writes % 16 = 1)
      and (change.revision, change.place) > (at_revision, at_place) and not ahead @> change.revision
    order by change.revision limit 1;
    if not found then
        select resource.modified, resource.modified_place into past.revision, past.place
        from {{.schema}}.resources resource where resource.key = sought;
        if not found then
            return;
        end if;
        if past.revision is null then -- not changed since its creation, which the index contains
            select change.revision, change.place into past.revision, past.place from {{.schema}}.changes change
            where change.key = sought and (change.op = 2 or change.writes % 16 = 1) order by change.revision desc limit 1;
            return;
        end if;
    end if;
    while (past.revision, past.place) > (at_revision, at_place) and not ahead @> past.revision loop
        select change.previous, change.previous_place into past.revision, past.place from {{.schema}}.changes change
        where change.revision = past.revision and change.place = past.place;
    end loop;
end $body$;

-- tip reads the highest number in the log that the calling statement sees, and whether all numbers up to it are final. They are if the
-- change at the base, a final number that the caller knows by the prefix of its token, still exists, and if no number between the base
-- and the tip is missing. A missing number belongs to a transaction in progress, or to one that was rolled back. The result has the
-- number, negative if it is not proven, and the prefix of the token of its first change. The function is stable, so that it reads the
-- snapshot of the calling statement.
create function {{.schema}}.tip(base bigint, base_place int, base_token bytea) returns bytea language plpgsql stable as $body$
declare
    highest bigint;
    present bigint;
begin
    perform from {{.schema}}.changes change
    where change.revision = base and change.place = base_place and substr(change.token, 1, 8) = base_token;
    if found then
        select coalesce(max(few.revision), base), count(*) into highest, present
        from (
            select change.revision from {{.schema}}.changes change
            where change.revision > base and change.revision < 9223372036854775807 and change.place = 0 order by change.revision limit 1024
        ) as few;
        if present < 1024 and present = highest - base then
            return (select int8send(highest) || substr(change.token, 1, 8) from {{.schema}}.changes change
                where change.revision = highest and change.place = 0);
        end if;
    end if;
    return (select int8send(-change.revision) || substr(change.token, 1, 8) from {{.schema}}.changes change
        where change.revision > 0 and change.revision < 9223372036854775807 and change.place = 0 order by change.revision desc limit 1);
end $body$;

-- ended reports whether a transaction has ended before the snapshot of the calling statement. Its id must be at most 2^31 below the
-- next one.
create function {{.schema}}.ended(id xid) returns boolean language plpgsql stable as $body$
declare
    seen constant pg_snapshot := pg_current_snapshot();
    next constant xid8 := pg_snapshot_xmax(seen);
begin
    return pg_visible_in_snapshot((next::text::bigint + age(next::xid) - age(id))::text::xid8, seen);
end $body$;

-- primary_value returns its argument in a read-only transaction of a primary, and refuses a read on a standby. A transaction that begins
-- on a standby is read-only until its end, also if the standby is promoted meanwhile. If all transactions of the session are read-only,
-- only the present role of the server counts.
create function {{.schema}}.primary_value(value anyelement) returns anyelement language plpgsql stable as $body$
begin
    if pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'off' then
        raise exception using errcode = 'read_only_sql_transaction', message = 'the server is a standby, expected a primary';
    end if;
    return value;
end $body$;

-- created returns the number and the place of the change that created a resource which has not changed since.
create function {{.schema}}.created(sought bytea) returns bigint[] language sql stable as $body$
    select array[change.revision, change.place] from {{.schema}}.changes change
    where change.key = sought and (change.op = 2 or change.writes % 16 = 1) order by change.revision desc limit 1
$body$;

-- apply carries out operations on different keys: each one independently, or all or none of them.
--
-- The function does not wait for a row that another transaction holds: the outcome of its operation is "busy" (0). So is the outcome,
-- after a moment, for a key that another transaction is creating. Each statement in the function has a snapshot of its own, so
-- decisions after the locks are decisions on the present. The outcomes are: 0 busy; 1 applied, or a check that holds; 2 not applied,
-- with the stored uid and version; 3 nothing to delete.
create function {{.schema}}.apply(
    attempt  bigint,      -- the key of an advisory lock that this function holds while it runs
    expires  timestamptz, -- a statement that starts later does nothing
    atomic   boolean,
    keys bytea[], ops smallint[], uids bytea[], expected bytea[], -- expected null: nothing is stored
    tokens bytea[], group_versions bytea[], owners bytea[], contents bytea[],
    guard text, guarded uuid -- a note of the journal and its required revision, or null
) returns table (
    place int, outcome smallint, stored_uid bytea, stored_version bytea, revision bigint, rank int, created bigint, writes bigint
)
language plpgsql
-- Each session plans these statements once, for any arguments, and keeps the plan when the tables grow. So the plan must not depend on
-- their size: a lookup by key is a subquery with "offset 0", which Postgres joins only row by row, and which uses the index because
-- sequential scans are off. But then a scan of the sequence, which has no index, looks so expensive that jit would compile it.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $body$
#variable_conflict use_column
declare
    given_up   boolean;
    written    tid;
    locked     boolean[];
    outcomes   smallint[];
    found_uids bytea[];
    versions   bytea[];
    refused    boolean;
    absences   int; -- operations, without creations, that require or found an absent resource
    creations  int;
    few        boolean; -- the absences are few enough to lock their keys
    numbered   boolean; -- the rows of new resources contain their numbers
    before     int;     -- number of rows to insert before numbers are drawn
    changing   int;
    made       int;
    drawn      bigint;
begin
    perform pg_advisory_xact_lock_shared(attempt);
    if clock_timestamp() > expires then
        raise exception using errcode = 'AS002', message = 'the statement arrived after its time';
    end if;
    -- A revocation holds the lock of its attempt exclusively until its row is committed, and the snapshot of the next statement is
    -- taken after this lock. If the transaction keeps its first snapshot, the snapshot is older. Then the function inserts a row of the
    -- same number, which also conflicts with a row that the snapshot does not show.
    if current_setting('transaction_isolation') = 'read committed' then
        perform from {{.schema}}.revoked where revoked.attempt = apply.attempt;
        given_up := found;
    else
        insert into {{.schema}}.revoked (attempt) values (apply.attempt) on conflict do nothing returning revoked.ctid into written;
        given_up := not found;
        delete from {{.schema}}.revoked where revoked.ctid = written; -- through the index, serializable transactions would conflict
    end if;
    if given_up then
        raise exception using errcode = 'AS002', message = 'the statement arrived after its sender had given it up';
    end if;
    -- A commit that stops waiting for its standby raises a warning, which the sender must receive.
    perform set_config('lock_timeout', '100ms', true),
        case current_setting('client_min_messages') when 'error' then set_config('client_min_messages', 'warning', true) end;
    if guard is not null then
        perform from {{.schema}}.journal note where note.name = guard and note.revision = guarded for share;
        if not found then
            raise exception using errcode = 'AS004', message = 'the note that guards the statement was written meanwhile';
        end if;
    end if;

    select array_agg(held.key is not null order by input.place) into locked
    from unnest(keys) with ordinality as input (key, place)
    left join lateral (
        select resource.key from {{.schema}}.resources resource where resource.key = input.key for update skip locked
    ) as held on true;

    select array_agg(decided.outcome order by decided.place), array_agg(decided.uid order by decided.place),
        array_agg(decided.version order by decided.place),
        bool_or(decided.outcome = 0 or decided.outcome = 2 and not (decided.op = 2 and decided.other)),
        count(*) filter (where decided.outcome = 1 and decided.absent and decided.op <> 1 or atomic and decided.outcome = 3),
        count(*) filter (where decided.outcome = 1 and decided.absent and decided.op = 1),
        count(*) filter (where decided.outcome = 1 and decided.op in (1, 2))
    into outcomes, found_uids, versions, refused, absences, creations, changing
    from (
        select input.place, input.op, resource.uid, resource.version, input.expected is null as absent,
            resource.uid <> input.uid as other,
            case
                when resource.key is not null and not input.locked then 0
                when input.expected is null and resource.key is null then 1
                when resource.uid = input.uid and resource.version = input.expected then 1
                when input.op = 2 and resource.key is null then 3
                else 2
            end::smallint as outcome
        from unnest(keys, ops, uids, expected, locked) with ordinality as input (key, op, uid, expected, locked, place)
        left join lateral (
            select key, uid, version from {{.schema}}.resources resource where resource.key = input.key offset 0
        ) as resource on true
    ) as decided;

    if atomic and refused then
        absences := 0;
        creations := 0;
        changing := 0;
    end if;

    -- A row that contains the number of its creation is inserted after that number is drawn. So this function first locks the key, and
    -- so does a transaction that relies on the absence of the resource. Afterwards, this function checks that no other transaction has
    -- used the key in between. A transaction that keeps its first snapshot would not see such a use, and the locks of many creations
    -- are too many for a server. In these cases, and if there are too many absences to lock, the rows are inserted before the draw,
    -- without numbers, which are then only in the log.
    few := absences <= 64;
    numbered := few and creations between 1 and 64 and current_setting('transaction_isolation') = 'read committed';
    if numbered or few and absences > 0 then
        perform pg_advisory_xact_lock(hashtextextended(encode(input.key, 'hex'), '{{.name}}'::regclass::oid::bigint))
        from (
            select * from unnest(keys, ops, expected, outcomes) with ordinality as input (key, op, expected, outcome, place)
            where input.outcome = 1 and input.expected is null and (input.op <> 1 or numbered) or atomic and input.outcome = 3
            order by input.place offset 0
        ) as input;
    end if;
    if numbered then
        -- A previous holder of one of the locks may have created the resource. Readers would wait for a number that is drawn and unused.
        perform from unnest(keys, ops, expected, outcomes) as input (key, op, expected, outcome)
        cross join lateral (select from {{.schema}}.resources resource where resource.key = input.key offset 0) as resource
        where input.outcome = 1 and input.expected is null and input.op = 1;
        if found then
            raise exception using errcode = 'AS003', message = 'a resource was created meanwhile';
        end if;
    end if;
    before := absences + case when numbered then 0 else creations end;
    if before > 0 then
        -- A row is also inserted for a check of an absence, and for a transaction that found nothing to delete: while the row exists, no
        -- other transaction can create it.
        with created as (
            insert into {{.schema}}.resources (key, uid, version, group_version, owner, data)
            select input.key, input.uid, input.token, input.group_version, input.owner, input.content
            from unnest(keys, ops, uids, expected, tokens, group_versions, owners, contents, outcomes) with ordinality
                as input (key, op, uid, expected, token, group_version, owner, content, outcome, place)
            where input.outcome = 1 and input.expected is null and (input.op <> 1 or not numbered) or atomic and input.outcome = 3
            order by input.place
            on conflict (key) do nothing
            returning 1
        ) select count(*) into made from created;
        if made <> before then
            raise exception using errcode = 'AS003', message = 'a resource was created meanwhile';
        end if;
        delete from {{.schema}}.resources resource
        using unnest(keys, ops, tokens) as input (key, op, token)
        cross join lateral (
            select ctid as tid from {{.schema}}.resources held where held.key = input.key and held.version = input.token offset 0
        ) as held
        where input.op in (2, 3) and resource.ctid = held.tid;
    end if;

    if changing > 0 then
        -- From here on, the function waits only for transactions that are creating the same resource. The note precedes the numbers.
        perform pg_advisory_xact_lock_shared(
            ('{{.name}}'::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int)
        from {{.schema}}.changes_seq;
        if atomic then
            drawn := nextval('{{.sequence}}');
        end if;
        return query
        with input as materialized (
            select * from unnest(keys, ops, uids, expected, tokens, group_versions, owners, contents, outcomes) with ordinality
                as input (key, op, uid, expected, token, group_version, owner, content, outcome, place)
            where input.outcome = 1 and input.op in (1, 2)
        ), known as materialized (
            select input.*, resource.tid,
                coalesce(resource.created, head.revision) as old_created,
                case when input.expected is not null then coalesce(resource.writes, 1) end as old_writes,
                coalesce(resource.modified, head.revision) as previous, coalesce(resource.modified_place, head.place) as previous_place
            from input
            left join lateral (
                select ctid as tid, key, created, writes, modified, modified_place from {{.schema}}.resources resource
                where resource.key = input.key and input.expected is not null offset 0
            ) as resource on true
            left join lateral (
                select change.revision, change.place from {{.schema}}.changes change
                where resource.modified is null and change.key = resource.key and (change.op = 2 or change.writes % 16 = 1)
                order by change.revision desc limit 1
            ) as head on true
        ), deleted as (
            delete from {{.schema}}.resources resource using known
            where resource.ctid = known.tid and known.op = 2
            returning known.place, resource.version, resource.data
        ), ranked as materialized (
            select known.*, coalesce(deleted.version, known.token) as version, coalesce(deleted.data, known.content) as data,
                case when atomic then drawn else nextval('{{.sequence}}') end as revision,
                case when atomic then (row_number() over (order by known.place) - 1)::int else 0 end as rank,
                count(*) over () as many
            from known left join deleted using (place)
        ), updated as (
            update {{.schema}}.resources resource
            set version = ranked.token, group_version = ranked.group_version, owner = ranked.owner, data = ranked.content,
                created = ranked.old_created, writes = ranked.old_writes + 1,
                modified = ranked.revision, modified_place = ranked.rank
            from ranked
            where resource.ctid = ranked.tid and ranked.op = 1 and ranked.expected is not null
        ), inserted as (
            insert into {{.schema}}.resources
                (key, uid, version, group_version, owner, data, created, writes, modified, modified_place)
            select key, uid, token, group_version, owner, content, revision, 1, revision, rank
            from ranked where numbered and op = 1 and expected is null
            order by place
            on conflict (key) do nothing
        ), logged as (
            insert into {{.schema}}.changes
                (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
            select revision, rank, atomic and rank < many - 1, op, key, version, token, data,
                coalesce(old_created, revision), case op when 1 then coalesce(old_writes, 0) + 1 else old_writes end,
                previous, previous_place
            from ranked
        )
        select answer.place::int, answer.outcome, answer.uid, answer.version, ranked.revision, ranked.rank,
            coalesce(ranked.old_created, ranked.revision),
            case ranked.op when 1 then coalesce(ranked.old_writes, 0) + 1 else ranked.old_writes end
        from unnest(outcomes, found_uids, versions) with ordinality as answer (outcome, uid, version, place)
        left join ranked using (place);
        if numbered then
            -- If others have created and deleted the resource in between, the index contains the deletion.
            select count(*) into made
            from unnest(keys, ops, tokens) as input (key, op, token)
            cross join lateral (
                select writes, modified from {{.schema}}.resources resource
                where resource.key = input.key and resource.version = input.token offset 0
            ) as resource
            where input.op = 1 and resource.writes = 1 and not exists (
                select from {{.schema}}.changes change
                where change.key = input.key and (change.op = 2 or change.writes % 16 = 1) and change.revision > resource.modified offset 0
            );
            if made <> creations then
                raise exception using errcode = 'AS003', message = 'a resource was created meanwhile';
            end if;
        end if;
        if not few then
            -- A transaction that has drawn a lower number for a resource whose absence matters here has locked its key, and waits for the
            -- row that existed for a moment.
            perform from pg_locks
            where locktype = 'advisory' and objsubid = 1 and pid is distinct from pg_backend_pid()
              and database = (select oid from pg_database where datname = current_database())
              and (classid::bigint << 32 | objid::bigint) in (
                select hashtextextended(encode(input.key, 'hex'), '{{.name}}'::regclass::oid::bigint)
                from unnest(keys, ops, expected, outcomes) as input (key, op, expected, outcome)
                where input.outcome = 1 and input.expected is null and input.op <> 1 or atomic and input.outcome = 3
            );
            if found then
                raise exception using errcode = 'AS003', message = 'a resource is being created meanwhile';
            end if;
        end if;
        return;
    end if;

    return query
    select answer.place::int, answer.outcome, answer.uid, answer.version, null::bigint, null::int, null::bigint, null::bigint
    from unnest(outcomes, found_uids, versions) with ordinality as answer (outcome, uid, version, place);
end $body$;
