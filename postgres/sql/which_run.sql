-- Identifies a run of a server, and a database among those that had the same name one after another. A server that crashed and
-- recovered by itself has the same start time, but has lost its statistics.
select concat_ws(' ', extract(epoch from pg_postmaster_start_time()), extract(epoch from pg_stat_get_bgwriter_stat_reset_time()), oid)
from pg_database where datname = current_database()
