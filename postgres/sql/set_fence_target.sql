-- Sets the fence's target, in the note ~fence.
insert into {{schema}}.journal (name, value) values ('~fence', $1)
on conflict (name) do update set value = excluded.value, revision = gen_random_uuid()
