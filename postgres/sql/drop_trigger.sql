-- Removes the trigger of an open fence.
drop trigger if exists fence on {{schema}}.resources
