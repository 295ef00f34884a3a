-- The tokens that took effect, whatever happened since. A visible commit may not be durable: a commit that stopped waiting for
-- its standby is visible too. The message that this statement writes to the server's log follows that commit, and the commit of
-- this statement waits for the same standbys. Superfluous changes remain for a while after the oldest change has moved; all
-- deleted changes are before "pruned".
with found as materialized (
    select version as token, coalesce(modified, (
        select revision from {{schema}}.changes as change where change.key = stored.key and {{template "milestones"}} order by revision desc limit 1
    )) as revision
    from {{schema}}.resources as stored where key = any($1) and version = any($2)
    union
    select token, revision from {{schema}}.changes where revision > $3 and revision < {{template "never"}} and token = any($2)
)
select {{primary "pruned"}}, token, revision, case when token is not null and {{template "warned"}} then pg_logical_emit_message(true, 'ashlar', '')::text end
from {{schema}}.store left join found on true
