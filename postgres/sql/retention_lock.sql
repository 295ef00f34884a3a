-- The lock of the one process that deletes old changes.
select pg_try_advisory_xact_lock(hashtextextended('ashlar retention ' || $1, 0))
