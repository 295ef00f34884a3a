-- The highest number in the log, and whether it is proven to be final.
select {{schema}}.tip($1, $2, $3)
