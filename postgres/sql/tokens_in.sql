-- The visible changes in a range of numbers.
select revision, token from {{schema}}.changes where revision between {{primary "$1::bigint"}} and $2 order by revision, place limit $3
