-- Writes to the log of the server, so that a commit waits for the standbys.
select pg_logical_emit_message(true, 'ashlar', '') where {{template "warned"}}
