-- Makes a change the oldest one. The change is looked up again, because the database may have been replaced since it was read. The
-- statement also writes to the log of the server if an earlier attempt has moved the oldest change, so that its commit waits for the
-- standbys: that attempt may not be durable.
with moved as (
    update {{schema}}.store set oldest = $1
    where oldest < $1 and exists (select from {{schema}}.changes where revision = $1 and place = $2 and substr(token, 1, 8) = $3)
)
select pg_logical_emit_message(true, 'ashlar', '') is not null where {{template "warned"}}
