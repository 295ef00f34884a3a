-- The last number drawn.
select {{primary "last_value"}} from {{schema}}.changes_seq
