-- Revokes an attempt, unless the attempt holds its lock: then it runs, and may still take effect. An attempt reads the
-- revocations after it has acquired its lock, which this statement holds until it commits. The statement also writes if the
-- attempt is already revoked, so that its commit waits for the standbys: an earlier revocation may be missing there.
with free as materialized (
    select pg_try_advisory_xact_lock($1) as held where {{template "warned"}}
), noted as (
    insert into {{schema}}.revoked (attempt) select $1 from free where held
    on conflict (attempt) do update set taken = clock_timestamp()
)
select held from free
