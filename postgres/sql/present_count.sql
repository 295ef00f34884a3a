-- The number of stored resources in a range that match a pattern.
select count(*) from {{schema}}.resources where key >= $1 and key < $2 and ($3::bytea is null or key like $3)
