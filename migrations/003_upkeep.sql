-- Values of some kilobytes stay in the row: moving them out of line halves the rate of writes. Updates find room in their own
-- page and touch no index. Both tables are vacuumed early and without pauses, by amounts and not by shares, because a share
-- of a large table is a lot of dead rows.

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

---- create above / drop below ----

alter table {{.schema}}.changes reset (
    toast_tuple_target, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor, autovacuum_analyze_threshold,
    autovacuum_vacuum_cost_delay
);
alter table {{.schema}}.changes alter column data set storage extended;
alter table {{.schema}}.resources reset (
    fillfactor, toast_tuple_target, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor,
    autovacuum_vacuum_cost_delay
);
alter table {{.schema}}.resources alter column data set storage extended;
