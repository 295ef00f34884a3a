-- The resources that match a pattern in which fixed text follows some of the wildcards. The template's argument is the number
-- of those wildcards, n. After $3, the arguments are the n fixed texts that follow the wildcards, each up to the next wildcard,
-- and the end of all texts that begin with the last one.
--
-- Such a filter skips keys between matches. The statement walks over the keys in steps of 16: a lookup by key costs as much as
-- a few of them. If the last key of a step matches, the step's rows extend to the end of its run of matching keys. Otherwise
-- the next step starts at the next possible match, as in driver.Filter.Seek. So a run of skipped keys costs one step, and short
-- runs cost no more than reading over them. Rows are looked up step by step, in order: sorting them as well would hold all of
-- them in memory.
{{- define "part_begins"}}{{if .}}part{{.}}.ends + octet_length(${{add . 3}}::bytea){{else}}octet_length($1::bytea){{end}}{{end}}
{{- with $n := .}}
with recursive step as (
    select null::bytea as first, null::bytea as upto, {{primary "$1::bytea"}} as next
    union all
    select step.next,
        case when last is null then case when matches then $2::bytea end
            when last like $3 then substr(last, 1, part{{$n}}.ends) || ${{add $n 4}}::bytea
            when matches then last || E'\\x00'::bytea end,
        case when last is not null then greatest(
            {{- range $n}}case when substr(last, part{{add . 1}}.ends + 1, octet_length(${{add . 4}}::bytea)) = ${{add . 4}}::bytea then {{end -}}
            substr(last, 1, part{{$n}}.ends - 1) || E'\\x01'::bytea
            {{- range $i := $n}}{{with $part := sub $n $i}}
            when substr(last, part{{$part}}.ends + 1, octet_length(${{add $part 3}}::bytea)) < ${{add $part 3}}::bytea
                then substr(last, 1, part{{$part}}.ends) || ${{add $part 3}}::bytea
            else substr(last, 1, part{{$part}}.ends - 1) || E'\\x01'::bytea end
            {{- end}}{{end}}, last || E'\\x00'::bytea) end
    from step cross join lateral (
        select (array_agg(key order by key))[16] as last, bool_or(key like $3) as matches
        from (select key from {{schema}}.resources where key >= step.next and key < $2 order by key limit 16) as few
    ) as seen
    {{- range $n}}
    cross join lateral (
        select {{template "part_begins" .}} + position(E'\\x00'::bytea in substr(last, {{template "part_begins" .}} + 1)) as ends offset 0
    ) as part{{add . 1}}
    {{- end}}
    where step.next is not null
)
select found.key, found.version, found.data
from step cross join lateral (
    select key, version, data from {{schema}}.resources where key >= step.first and key < step.upto and key like $3 order by key offset 0
) as found
where step.upto is not null
{{- end}}
