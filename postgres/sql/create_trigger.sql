-- The trigger of the fence.
create or replace trigger fence before insert or update or delete or truncate on {{schema}}.resources for each statement execute function {{schema}}.fence()
