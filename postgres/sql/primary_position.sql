-- The position of a primary in its write-ahead log.
select ('x' || left(pg_walfile_name(at), 8))::bit(32)::bigint, (at - '0/0')::bigint from pg_current_wal_insert_lsn() as at
