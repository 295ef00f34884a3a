-- What the tool that moves a store's data to another one notes in it. The note "fence" says where the data went; while it is
-- there, a trigger keeps writers away. The trigger is made when it is needed, so that it costs nothing before.

create table {{.schema}}.journal (
    name     text  primary key,
    revision uuid  not null default gen_random_uuid(),
    value    bytea not null
);

---- create above / drop below ----

drop trigger if exists fence on {{.schema}}.resources;
drop function if exists {{.schema}}.fence();
drop table {{.schema}}.journal;
