-- An attempt whose answer was lost is revoked before its sender goes on: if it arrives later, however late, it does nothing. Its time
-- alone does not hold it back, because the server's clock may step back meanwhile.

create table {{.schema}}.revoked (
    attempt bigint primary key, -- the number of the lock that the attempt holds while it runs
    taken   timestamptz not null default clock_timestamp()
);

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

---- create above / drop below ----

-- apply carries out operations on different keys: each by itself, or all or none of them.
--
-- A row that another transaction holds is not waited for: its operation is answered "busy" (0), as is one whose key another
-- transaction is creating, after a moment. Each statement in here has a snapshot of its own, so what is decided after the locks
-- is decided on the present. The outcomes: 0 busy; 1 done, or of a check that it holds; 2 not done, with what is stored; 3 there is
-- nothing to delete.
create or replace function {{.schema}}.apply(
    attempt  bigint,      -- held as an advisory lock for as long as this runs
    expires  timestamptz, -- a statement that begins later does nothing: its sender has given it up
    atomic   boolean,
    keys bytea[], ops smallint[], uids bytea[], expected bytea[], -- expected null: nothing is stored
    tokens bytea[], group_versions bytea[], owners bytea[], contents bytea[],
    guard text, guarded uuid -- a note of the journal, and the revision that it must have; null for none
) returns table (place int, outcome smallint, stored_uid bytea, stored_version bytea, revision bigint, rank int)
language plpgsql as $body$
#variable_conflict use_column
declare
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

drop table {{.schema}}.revoked;
