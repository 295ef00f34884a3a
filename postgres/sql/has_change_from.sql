-- Whether there is a change at or after a number.
select id, exists (select from {{schema}}.changes where revision >= $1 and revision < {{template "never"}}) from {{schema}}.store
