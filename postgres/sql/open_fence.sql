-- The function of the open fence, which lets every writer pass.
create or replace function {{schema}}.fence() returns trigger language plpgsql as $body$ begin return null; end $body$
