-- Whether the oldest change has a number or a higher one. If so, the statement writes to the log of the server, so that its commit waits for
-- the standbys. A server that does not have the earlier compaction proves nothing.
select {{primary "oldest"}} >= $1 and pg_logical_emit_message(true, 'ashlar', '') is not null from {{schema}}.store where {{template "warned"}}
