-- The first of three statements of creations, which are one transaction. It takes the locks of the attempt and of the keys, as the function
-- apply does, but without a wait. So the snapshot of the next statement is younger than the locks. The setting ashlar.creating says whether
-- the transaction has all of them, and may continue. Only an insertion beside a creator that locks no key waits, and not for long.
select set_config('lock_timeout', '100ms', true), set_config('ashlar.creating', (
    current_setting('transaction_isolation') = 'read committed' and pg_try_advisory_xact_lock_shared($1) and {{template "in_time" 3}}
    and (select bool_and(pg_try_advisory_xact_lock(hashtextextended(encode(key, 'hex'), {{name "changes"}}::regclass::oid::bigint))) from unnest($2::bytea[]) as key)
)::text, true)
