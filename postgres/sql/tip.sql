-- The highest number in the log, and whether it is proven to be final.
select {{template "tip_from" 1}}
