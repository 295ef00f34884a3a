-- The third statement of creations. It fails if a transaction that takes no lock of the key (many creations at once) has created the
-- resource, and another one has deleted it, between the number of the creation and its insertion: the number would be too low. SQL has
-- no statement that raises an error, so a text is converted to a number.
select ('the resource was created and deleted meanwhile, see change ' || deletion.revision)::int
from (select unnest((select $1::bytea[])) as key, unnest($2::bytea[]) as token) as input
cross join lateral (
    select key, modified from {{schema}}.resources resource where resource.key = input.key and resource.version = input.token offset 0
) as created
cross join lateral (
    select revision from {{schema}}.changes change
    where change.key = created.key and change.op = 2 and change.revision > created.modified order by change.revision limit 1
) as deletion
