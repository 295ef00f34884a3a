-- Mutations that the function apply carries out. The notes of others are read after the function has returned, so after its
-- numbers are drawn. With a guard, a setting of the transaction has its name, for the fence.
with applied as materialized (
    select place, outcome, stored_uid, stored_version, revision, rank, created, writes
    from (select {{if .}}case when set_config('ashlar.guard', $12, true) is not null then 1 end{{else}}1{{end}} as one from {{schema}}.changes_seq where last_value >= $15 offset 0) as reached
    cross join lateral {{schema}}.apply($1::bigint * one, $2, $3,
        $4::bytea[], $5::smallint[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12, $13)
), drawn as materialized (
    select max(revision) as last from applied
), alone as materialized (
    select case when $14 then not exists ({{template "others" "drawn.last"}}) end as settled from drawn
)
select applied.*, alone.settled from applied cross join alone
