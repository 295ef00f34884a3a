-- The row of a resource holds the numbers of its only change, too, so that a list need not look into the log for each resource that was
-- never changed since it was created. Rows that were inserted before stay as they are until they are changed.

-- The function as it was locks no keys, so a call of it may not run beside one of the new one. Each has read the sequence before it begins: this
-- waits for those under way, and the others wait until the function is replaced.
do $body$ begin
    execute 'alter sequence {{.sequence}} owner to ' || (
        select quote_ident(pg_get_userbyid(relowner)) from pg_class where oid = '{{.sequence}}'::regclass);
end $body$;

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
) returns table (
    place int, outcome smallint, stored_uid bytea, stored_version bytea, revision bigint, rank int, created bigint, writes bigint
)
language plpgsql
-- The statements in here are planned once in each session, for any arguments, and that plan stays when the tables have grown. So it may not
-- depend on how small they were: what is looked up by a key is a subquery with "offset 0", which Postgres does not join in any other way
-- than row by row, and which goes through the index where scans of the table are off. Then again a scan of the sequence, to which there is
-- no other way, looks so expensive that it would be compiled.
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
    absences   int; -- operations other than creations that demand, or found, that nothing is stored
    creations  int;
    few        boolean; -- there are not too many of them to lock their keys
    numbered   boolean; -- the rows of what is created hold their numbers
    before     int;     -- rows to insert before numbers are drawn
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

    -- A row that is to hold the number of its creation is inserted after that was drawn. So its key is locked first, here and where
    -- another transaction relies on that nothing is stored under it; and afterwards it is made sure that nobody else used the key in
    -- between. A session that keeps its first snapshot would not see that, and the locks of many creations are too many for a server:
    -- these rows are inserted before, without numbers, which the log tells. So they are beside more absences than can be locked.
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
        -- Whoever held one of the locks may have created the resource. To draw a number that is not used would make readers wait for it.
        perform from unnest(keys, ops, expected, outcomes) as input (key, op, expected, outcome)
        cross join lateral (select from {{.schema}}.resources resource where resource.key = input.key offset 0) as resource
        where input.outcome = 1 and input.expected is null and input.op = 1;
        if found then
            raise exception using errcode = 'AS003', message = 'a resource was created meanwhile';
        end if;
    end if;
    before := absences + case when numbered then 0 else creations end;
    if before > 0 then
        -- Also where a check demands that nothing is stored, or a transaction found nothing to delete: while the row is there, nobody
        -- else can create it.
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
        -- From here on nothing is waited for, but whoever is just creating the same resource. The note comes first, then the numbers.
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
            -- Of a life that others began and ended meanwhile, the index has the end.
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
            -- Whoever has drawn a lower number for a resource that this transaction relies on not to be there has locked its key, and waits
            -- for the row that was there for a moment.
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

---- create above / drop below ----

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
