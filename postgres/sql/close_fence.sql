-- The function of the closed fence, which lets a writer pass that has the guard that the fence admits. The fence is in the note and not
-- in this text, where it would have to be escaped twice.
create or replace function {{schema}}.fence() returns trigger language plpgsql as $body$
declare fence text;
begin
    select convert_from(value, 'UTF8') into fence from {{schema}}.journal where name = '~fence';
    if fence like '{"target":%' and fence::json ->> 'admits' = current_setting('ashlar.guard', true) then
        return null;
    end if;
    raise exception using errcode = 'AS001', message = 'the store is closed for writing', detail = coalesce(fence, '');
end $body$
