-- The last number drawn.
select last_value from {{schema}}.changes_seq
