-- The visible changes in a range of numbers.
select revision, token from {{schema}}.changes where revision between $1 and $2 order by revision, place limit $3
