-- The first bytes of the token of a change.
select (select substr(token, 1, 8) from {{schema}}.changes where revision = {{primary "$1::bigint"}} and place = $2)
