-- Replaces a note of a given revision.
update {{schema}}.journal set value = $2, revision = gen_random_uuid() where name = $1 and revision::text = $3 returning revision::text
