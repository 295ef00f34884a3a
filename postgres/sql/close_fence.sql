-- The function of the closed fence. The target is in the note and not in this text, where it would have to be escaped twice.
create or replace function {{schema}}.fence() returns trigger language plpgsql as $body$
declare target text;
begin
    select convert_from(value, 'UTF8') into target from {{schema}}.journal where name = '~fence';
    raise exception using errcode = 'AS001', message = 'the store is closed for writing', detail = coalesce(target, '');
end $body$
