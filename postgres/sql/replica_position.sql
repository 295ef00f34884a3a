-- Whether the server is a standby, and its position in the write-ahead log.
select pg_is_in_recovery(), greatest(timeline_id, min_recovery_end_timeline)::bigint, (coalesce(pg_last_wal_replay_lsn(), '0/0') - '0/0')::bigint
from pg_control_checkpoint(), pg_control_recovery()
