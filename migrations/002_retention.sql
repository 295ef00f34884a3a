-- Old changes are deleted. horizon is the snapshot of which every change may be gone (null: nothing is gone); marks are
-- snapshots with their time, the horizons to come.

alter table {{.schema}}.store add column horizon text;

create table {{.schema}}.marks (
    taken    timestamptz primary key default clock_timestamp(),
    snapshot text not null
);

---- create above / drop below ----

drop table {{.schema}}.marks;
alter table {{.schema}}.store drop column horizon;
