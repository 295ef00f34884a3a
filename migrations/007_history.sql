-- The store can be read as it was at a number: the log keeps, of each resource, also the newest row at or before the horizon. Rows
-- of the log are found by key without an index entry for each of them: a row names the one before it, and the index holds some.
--
-- Programs of version 6 fail: the horizon has another name, and what they log lacks columns.
--
-- What was logged before does not say what it followed. It is dropped, what is stored is numbered anew, and the store's new id
-- makes the cursors into it void.

update {{.schema}}.store set id = gen_random_uuid();
alter table {{.schema}}.store drop column horizon;
alter table {{.schema}}.store
    add column oldest bigint not null default 0, -- changes before this number may be gone; 0: none is
    add column pruned bigint not null default 0; -- what the changes before this number made superfluous is gone
truncate {{.schema}}.marks;

-- Null for as long as there was one change only: then the log tells, and the row need not be written twice.
alter table {{.schema}}.resources
    add column created        bigint, -- number of the change that created the resource
    add column writes         bigint, -- changes since, that one included
    add column modified       bigint, -- number of the last change
    add column modified_place int;

drop table {{.schema}}.changes;
create table {{.schema}}.changes (
    revision       bigint   not null, -- drawn while the resources of the commit are locked
    created        bigint   not null, -- number of the change that created the resource
    writes         bigint   not null, -- changes since, that one included; of a delete, as of what was last stored
    previous       bigint,            -- the change before of the same resource; null if this one created it
    previous_place int,
    place          int      not null, -- among the changes of one commit, from 0
    op             smallint not null, -- 1 written, 2 deleted
    more           boolean  not null, -- the next place belongs to the same commit
    key            bytea    not null,
    version        bytea    not null, -- of the resource in data
    token          bytea    not null, -- of the call that made the change: the version it gave, or a delete's own
    data           bytea    not null, -- what was written; of a delete, what was last stored
    primary key (revision, place)
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
insert into {{.schema}}.changes (revision, created, writes, place, op, more, key, version, token, data)
select number, number, 1, 0, 1, false, key, version, version, data
from (
    select resource.*, nextval('{{.sequence}}') as number
    from (select * from {{.schema}}.resources order by key offset 0) as resource
) as numbered;
update {{.schema}}.store set oldest = newest, pruned = newest
from (select max(revision) as newest from {{.schema}}.changes) as last where newest is not null;
-- An index of all changes by key would take a tenth of the rate of writes. These are the ends of a resource's life, and every
-- sixteenth change between; from the next one that it holds, past goes back to any other.
create index changes_key on {{.schema}}.changes (key, revision) where op = 2 or writes % 16 = 1;
create index changes_deleted on {{.schema}}.changes (key, revision) where op = 2;

-- past finds the last change of a key that a position includes, if it is a write; nothing otherwise. The position includes all changes up
-- to one, and those whose numbers are ahead.
create function {{.schema}}.past(
    sought bytea, at_revision bigint, at_place int, ahead int8multirange, out revision bigint, out place int
) language plpgsql stable as $body$
#variable_conflict use_column
begin
    -- The first known change after the position.
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
        if past.revision is null then -- created, and not changed since: the index has it
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

-- created returns the number and the place of the change by which a resource was created that was never changed since.
create function {{.schema}}.created(sought bytea) returns bigint[] language sql stable as $body$
    select array[change.revision, change.place] from {{.schema}}.changes change
    where change.key = sought and (change.op = 2 or change.writes % 16 = 1) order by change.revision desc limit 1
$body$;

drop function {{.schema}}.apply;

-- apply carries out operations on different keys: each by itself, or all or none of them.
--
-- A row that another transaction holds is not waited for: its operation is answered "busy" (0), as is one whose key another
-- transaction is creating, after a moment. Each statement in here has a snapshot of its own, so what is decided after the locks
-- is decided on the present. The outcomes: 0 busy; 1 done, or of a check that it holds; 2 not done, with what is stored; 3 there is
-- nothing to delete.
create function {{.schema}}.apply(
    attempt  bigint,      -- held as an advisory lock for as long as this runs
    expires  timestamptz, -- a statement that begins later does nothing
    atomic   boolean,
    keys bytea[], ops smallint[], uids bytea[], expected bytea[], -- expected null: nothing is stored
    tokens bytea[], group_versions bytea[], owners bytea[], contents bytea[],
    guard text, guarded uuid -- a note of the journal, and the revision that it must have; null for none
) returns table (
    place int, outcome smallint, stored_uid bytea, stored_version bytea, revision bigint, rank int, created bigint, writes bigint
)
language plpgsql as $body$
#variable_conflict use_column
declare
    given_up   boolean;
    written    tid;
    locked     boolean[];
    outcomes   smallint[];
    found_uids bytea[];
    versions   bytea[];
    refused    boolean;
    wanted     int; -- resources to create
    changing   int;
    made       int;
    drawn      bigint;
begin
    perform pg_advisory_xact_lock_shared(attempt);
    if clock_timestamp() > expires then
        raise exception using errcode = 'AS002', message = 'the statement arrived after its time';
    end if;
    -- Whoever revokes an attempt holds its lock alone until the row is committed, and this statement's snapshot is taken after the
    -- lock. In a session whose transactions keep their first snapshot it is not: there a row of the same number is written, which
    -- fails also for one that the snapshot does not show.
    if current_setting('transaction_isolation') = 'read committed' then
        perform from {{.schema}}.revoked where revoked.attempt = apply.attempt;
        given_up := found;
    else
        insert into {{.schema}}.revoked (attempt) values (apply.attempt) on conflict do nothing returning revoked.ctid into written;
        given_up := not found;
        delete from {{.schema}}.revoked where revoked.ctid = written; -- the index would have serializable ones meet each other
    end if;
    if given_up then
        raise exception using errcode = 'AS002', message = 'the statement arrived after its sender had given it up';
    end if;
    perform set_config('lock_timeout', '100ms', true);
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
        count(*) filter (where decided.outcome = 1 and decided.absent or atomic and decided.outcome = 3),
        count(*) filter (where decided.outcome = 1 and decided.op in (1, 2))
    into outcomes, found_uids, versions, refused, wanted, changing
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
        left join {{.schema}}.resources resource on resource.key = input.key
    ) as decided;

    if atomic and refused then
        wanted := 0;
        changing := 0;
    end if;

    if wanted > 0 then
        -- Also where a check demands that nothing is stored, or a transaction found nothing to delete: while the row is there, nobody
        -- else can create it.
        with created as (
            insert into {{.schema}}.resources (key, uid, version, group_version, owner, data)
            select input.key, input.uid, input.token, input.group_version, input.owner, input.content
            from unnest(keys, uids, expected, tokens, group_versions, owners, contents, outcomes) with ordinality
                as input (key, uid, expected, token, group_version, owner, content, outcome, place)
            where input.outcome = 1 and input.expected is null or atomic and input.outcome = 3
            order by input.place
            on conflict (key) do nothing
            returning 1
        ) select count(*) into made from created;
        if made <> wanted then
            raise exception using errcode = 'AS003', message = 'a resource was created meanwhile';
        end if;
        delete from {{.schema}}.resources resource
        using unnest(keys, ops, tokens) as input (key, op, token)
        where input.op in (2, 3) and resource.key = input.key and resource.version = input.token;
    end if;

    if changing > 0 then
        -- From here on nothing is waited for. The note comes first, then the numbers.
        perform pg_advisory_xact_lock_shared(
            ('{{.name}}'::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int)
        from {{.schema}}.changes_seq;
        if atomic then
            drawn := nextval('{{.sequence}}');
        end if;
        return query
        with input as materialized (
            select * from unnest(keys, ops, expected, tokens, group_versions, owners, contents, outcomes) with ordinality
                as input (key, op, expected, token, group_version, owner, content, outcome, place)
            where input.outcome = 1 and input.op in (1, 2)
        ), known as materialized (
            select input.*,
                coalesce(resource.created, head.revision) as old_created,
                case when input.expected is not null then coalesce(resource.writes, 1) end as old_writes,
                coalesce(resource.modified, head.revision) as previous, coalesce(resource.modified_place, head.place) as previous_place
            from input
            left join {{.schema}}.resources resource on resource.key = input.key and input.expected is not null
            left join lateral (
                select change.revision, change.place from {{.schema}}.changes change
                where resource.modified is null and change.key = resource.key and (change.op = 2 or change.writes % 16 = 1)
                order by change.revision desc limit 1
            ) as head on true
        ), deleted as (
            delete from {{.schema}}.resources resource using known
            where resource.key = known.key and known.op = 2
            returning known.place, resource.version, resource.data
        ), numbered as materialized (
            select known.*, coalesce(deleted.version, known.token) as version, coalesce(deleted.data, known.content) as data,
                case when atomic then drawn else nextval('{{.sequence}}') end as revision,
                case when atomic then (row_number() over (order by known.place) - 1)::int else 0 end as rank,
                count(*) over () as many
            from known left join deleted using (place)
        ), updated as (
            update {{.schema}}.resources resource
            set version = numbered.token, group_version = numbered.group_version, owner = numbered.owner, data = numbered.content,
                created = numbered.old_created, writes = numbered.old_writes + 1,
                modified = numbered.revision, modified_place = numbered.rank
            from numbered
            where resource.key = numbered.key and numbered.op = 1 and numbered.expected is not null
        ), logged as (
            insert into {{.schema}}.changes
                (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
            select revision, rank, atomic and rank < many - 1, op, key, version, token, data,
                coalesce(old_created, revision), case op when 1 then coalesce(old_writes, 0) + 1 else old_writes end,
                previous, previous_place
            from numbered
        )
        select answer.place::int, answer.outcome, answer.uid, answer.version, numbered.revision, numbered.rank,
            coalesce(numbered.old_created, numbered.revision),
            case numbered.op when 1 then coalesce(numbered.old_writes, 0) + 1 else numbered.old_writes end
        from unnest(outcomes, found_uids, versions) with ordinality as answer (outcome, uid, version, place)
        left join numbered using (place);
        return;
    end if;

    return query
    select answer.place::int, answer.outcome, answer.uid, answer.version, null::bigint, null::int, null::bigint, null::bigint
    from unnest(outcomes, found_uids, versions) with ordinality as answer (outcome, uid, version, place);
end $body$;

---- create above / drop below ----

drop function {{.schema}}.apply;
drop function {{.schema}}.created;
drop function {{.schema}}.past;
delete from {{.schema}}.changes where revision < (select oldest from {{.schema}}.store);
drop index {{.schema}}.changes_key;
drop index {{.schema}}.changes_deleted;
alter table {{.schema}}.changes
    drop column created, drop column writes, drop column previous, drop column previous_place;
alter table {{.schema}}.resources
    drop column created, drop column writes, drop column modified, drop column modified_place;
alter table {{.schema}}.store drop column pruned;
alter table {{.schema}}.store rename column oldest to horizon;

-- apply carries out operations on different keys: each by itself, or all or none of them.
--
-- A row that another transaction holds is not waited for: its operation is answered "busy" (0), as is one whose key another
-- transaction is creating, after a moment. Each statement in here has a snapshot of its own, so what is decided after the locks
-- is decided on the present. The outcomes: 0 busy; 1 done, or of a check that it holds; 2 not done, with what is stored; 3 there is
-- nothing to delete.
create or replace function {{.schema}}.apply(
    attempt  bigint,      -- held as an advisory lock for as long as this runs
    expires  timestamptz, -- a statement that begins later does nothing
    atomic   boolean,
    keys bytea[], ops smallint[], uids bytea[], expected bytea[], -- expected null: nothing is stored
    tokens bytea[], group_versions bytea[], owners bytea[], contents bytea[],
    guard text, guarded uuid -- a note of the journal, and the revision that it must have; null for none
) returns table (place int, outcome smallint, stored_uid bytea, stored_version bytea, revision bigint, rank int)
language plpgsql as $body$
#variable_conflict use_column
declare
    given_up   boolean;
    written    tid;
    locked     boolean[];
    outcomes   smallint[];
    found_uids bytea[];
    versions   bytea[];
    refused    boolean;
    wanted     int; -- resources to create
    changing   int;
    made       int;
    drawn      bigint;
begin
    perform pg_advisory_xact_lock_shared(attempt);
    if clock_timestamp() > expires then
        raise exception using errcode = 'AS002', message = 'the statement arrived after its time';
    end if;
    -- Whoever revokes an attempt holds its lock alone until the row is committed, and this statement's snapshot is taken after the
    -- lock. In a session whose transactions keep their first snapshot it is not: there a row of the same number is written, which
    -- fails also for one that the snapshot does not show.
    if current_setting('transaction_isolation') = 'read committed' then
        perform from {{.schema}}.revoked where revoked.attempt = apply.attempt;
        given_up := found;
    else
        insert into {{.schema}}.revoked (attempt) values (apply.attempt) on conflict do nothing returning revoked.ctid into written;
        given_up := not found;
        delete from {{.schema}}.revoked where revoked.ctid = written; -- the index would have serializable ones meet each other
    end if;
    if given_up then
        raise exception using errcode = 'AS002', message = 'the statement arrived after its sender had given it up';
    end if;
    perform set_config('lock_timeout', '100ms', true);
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
        count(*) filter (where decided.outcome = 1 and decided.absent or atomic and decided.outcome = 3),
        count(*) filter (where decided.outcome = 1 and decided.op in (1, 2))
    into outcomes, found_uids, versions, refused, wanted, changing
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
        left join {{.schema}}.resources resource on resource.key = input.key
    ) as decided;

    if atomic and refused then
        wanted := 0;
        changing := 0;
    end if;

    if wanted > 0 then
        -- Also where a check demands that nothing is stored, or a transaction found nothing to delete: while the row is there, nobody
        -- else can create it.
        with created as (
            insert into {{.schema}}.resources (key, uid, version, group_version, owner, data)
            select input.key, input.uid, input.token, input.group_version, input.owner, input.content
            from unnest(keys, uids, expected, tokens, group_versions, owners, contents, outcomes) with ordinality
                as input (key, uid, expected, token, group_version, owner, content, outcome, place)
            where input.outcome = 1 and input.expected is null or atomic and input.outcome = 3
            order by input.place
            on conflict (key) do nothing
            returning 1
        ) select count(*) into made from created;
        if made <> wanted then
            raise exception using errcode = 'AS003', message = 'a resource was created meanwhile';
        end if;
        delete from {{.schema}}.resources resource
        using unnest(keys, ops, tokens) as input (key, op, token)
        where input.op in (2, 3) and resource.key = input.key and resource.version = input.token;
    end if;

    if changing > 0 then
        -- From here on nothing is waited for. The note comes first, then the numbers.
        perform pg_advisory_xact_lock_shared(
            ('{{.name}}'::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int)
        from {{.schema}}.changes_seq;
        if atomic then
            drawn := nextval('{{.sequence}}');
        end if;
        return query
        with input as materialized (
            select * from unnest(keys, ops, expected, tokens, group_versions, owners, contents, outcomes) with ordinality
                as input (key, op, expected, token, group_version, owner, content, outcome, place)
            where input.outcome = 1 and input.op in (1, 2)
        ), updated as (
            update {{.schema}}.resources resource
            set version = input.token, group_version = input.group_version, owner = input.owner, data = input.content
            from input
            where resource.key = input.key and input.op = 1 and input.expected is not null
        ), deleted as (
            delete from {{.schema}}.resources resource using input
            where resource.key = input.key and input.op = 2
            returning input.place, resource.version, resource.data
        ), numbered as materialized (
            select input.place, input.op, input.key, input.token,
                coalesce(deleted.version, input.token) as version, coalesce(deleted.data, input.content) as data,
                case when atomic then drawn else nextval('{{.sequence}}') end as revision,
                case when atomic then (row_number() over (order by input.place) - 1)::int else 0 end as rank,
                count(*) over () as many
            from input left join deleted using (place)
        ), logged as (
            insert into {{.schema}}.changes (revision, place, more, op, key, version, token, data)
            select revision, rank, atomic and rank < many - 1, op, key, version, token, data from numbered
        )
        select answer.place::int, answer.outcome, answer.uid, answer.version, numbered.revision, numbered.rank
        from unnest(outcomes, found_uids, versions) with ordinality as answer (outcome, uid, version, place)
        left join numbered using (place);
        return;
    end if;

    return query
    select answer.place::int, answer.outcome, answer.uid, answer.version, null::bigint, null::int
    from unnest(outcomes, found_uids, versions) with ordinality as answer (outcome, uid, version, place);
end $body$;
