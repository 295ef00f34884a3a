-- The fence, null in an open store.
select {{template "fence"}}
