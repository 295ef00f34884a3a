-- The first bytes of the token of a change.
select (select substr(token, 1, 8) from {{schema}}.changes where revision = $1 and place = $2)
