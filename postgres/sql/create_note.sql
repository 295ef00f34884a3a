-- Creates a note, unless it exists.
insert into {{schema}}.journal (name, value) values ($1, $2) on conflict (name) do nothing returning revision::text
