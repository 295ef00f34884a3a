-- The highest number in the log, and whether it is proven to be final. The function tip proves nothing if 1,024 or more changes
-- follow the base.
select {{template "tip_from" 1}}
