-- Removes the function of an open fence.
drop function if exists {{schema}}.fence()
