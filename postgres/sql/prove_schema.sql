-- Whether the store has a schema version. If so, the statement writes to the log of the server, so that its commit waits for the standbys.
-- A server that does not have the earlier upgrade proves nothing.
select {{primary "max(version)"}} >= $1 and pg_logical_emit_message(true, 'ashlar', '') is not null from {{schema}}.schema_version where {{template "warned"}}
