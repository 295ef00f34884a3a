-- The newest row, up to a row, at which no call is incomplete. Programs of an earlier version could move the horizon into a call.
SELECT seq, tag FROM log WHERE seq <= ?1 AND (last <= seq OR seq <= ?2) ORDER BY seq DESC LIMIT 1;
