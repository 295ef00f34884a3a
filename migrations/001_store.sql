-- A store: what is kept, and the log of what changed. Keys are bytes (the parts of a key joined by NUL), so that their order
-- is the order of the contract whatever the database's collation is; uids and group versions are bytes too, so that its
-- encoding does not matter either.

create table {{.schema}}.store (
    only_row boolean primary key default true check (only_row),
    id       uuid not null default gen_random_uuid(), -- in every cursor
    origin   text                                     -- the server, database and table that the log's xids belong to
);
insert into {{.schema}}.store default values;

create table {{.schema}}.resources (
    key           bytea primary key,
    uid           bytea not null,
    version       bytea not null, -- 16 random bytes, new with every write
    group_version bytea not null,
    owner         bytea,          -- hash of the owner's key and uid
    data          bytea not null  -- the resource without its version
);
create index resources_owner on {{.schema}}.resources (owner) where owner is not null;

create sequence {{.schema}}.changes_seq;

-- A change is visible to a snapshot if its transaction is. seq is drawn while the resource's row is locked, so that its order
-- is the order of commits for each key.
create table {{.schema}}.changes (
    xid     xid8     not null default pg_current_xact_id(),
    seq     bigint   not null,
    op      smallint not null, -- 1 written, 2 deleted
    key     bytea    not null,
    version bytea    not null, -- of the resource in data
    token   bytea    not null, -- of the call that made the change: the version it gave, or a delete's own
    data    bytea    not null, -- what was written; of a delete, what was last stored
    primary key (xid, seq)
);

---- create above / drop below ----

drop table {{.schema}}.changes;
drop sequence {{.schema}}.changes_seq;
drop table {{.schema}}.resources;
drop table {{.schema}}.store;
