package postgres

import (
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// The statements that list what is stored now, from one snapshot, row by row as they are read.
//
// A filter whose wildcards have something fixed after them leaves out keys between those that it matches. Its list goes over the keys in
// steps: each looks at some keys. If the last one matches, the rows that are read reach to the end of its run of matching keys;
// otherwise the next step begins where a match may be, as driver.Filter.Seek says. So a run of keys that are left out costs a step, and
// short ones cost no more than to walk over them.

// listExact lists the keys of a range.
const listExact = `
select key, version, data from $resources
where key >= $1 and ($2::bytea is null or key < $2) and ($3::bytea is null or key like $3)
order by key`

// listSteps has, in place of $levels, $seek and $end, what depends on the number of wildcards. Steps come one after another, and rows are
// looked up step by step: sorting them too would hold all of them.
const listSteps = `
with recursive step as (
    select null::bytea as first, null::bytea as upto, $1::bytea as next
    union all
    select step.next,
        case when last is null then case when matches then $2::bytea end
            when last like $3 then $end
            when matches then last || '\x00'::bytea end,
        case when last is not null then greatest($seek, last || '\x00'::bytea) end
    from step cross join lateral (
        select (array_agg(key order by key))[$many] as last, bool_or(key like $3) as matches
        from (select key from $resources where key >= step.next and key < $2 order by key limit $many) as few
    ) as seen
    $levels
    where step.next is not null
)
select found.key, found.version, found.data
from step cross join lateral (
    select key, version, data from $resources where key >= step.first and key < step.upto and key like $3 order by key offset 0
) as found
where step.upto is not null`

// stepKeys is how many keys a step looks at: a look-up by key costs as much as a few of them.
const stepKeys = "16"

// maxWildcards is the number of parts of a key that may be wildcards.
const maxWildcards = 4

// newListSteps returns the statement for so many wildcards. After $3 each has an argument, the fixed text between it and the next
// one; the last argument is what comes after all texts that begin with the last of those.
func newListSteps(wildcards int, sql func(string) string) string {
	var levels strings.Builder
	seek := fmt.Sprintf(`substr(last, 1, part%d.ends - 1) || '\x01'::bytea`, wildcards)
	begins := `octet_length($1::bytea)`
	for i := 1; i <= wildcards; i++ {
		// Where the part ends that the wildcard stands for.
		fmt.Fprintf(&levels, `cross join lateral (
        select %[1]s + position('\x00'::bytea in substr(last, %[1]s + 1)) as ends offset 0
    ) as part%[2]d `, begins, i)
		begins = fmt.Sprintf(`part%d.ends + octet_length($%d::bytea)`, i, 3+i)
	}
	for i := wildcards; i >= 1; i-- {
		seek = fmt.Sprintf(`case when substr(last, part%[1]d.ends + 1, octet_length($%[2]d::bytea)) = $%[2]d::bytea then %[3]s
            when substr(last, part%[1]d.ends + 1, octet_length($%[2]d::bytea)) < $%[2]d::bytea
                then substr(last, 1, part%[1]d.ends) || $%[2]d::bytea
            else substr(last, 1, part%[1]d.ends - 1) || '\x01'::bytea end`, i, 3+i, seek)
	}
	end := fmt.Sprintf(`substr(last, 1, part%d.ends) || $%d::bytea`, wildcards, 4+wildcards)
	return sql(strings.NewReplacer("$many", stepKeys, "$seek", seek, "$end", end, "$levels", levels.String()).Replace(listSteps))
}

// listing is the statement that lists what a filter matches, with its arguments.
func (s *statements) listing(f *driver.Filter) (sql string, arguments []any) {
	arguments = listArguments(f)
	if arguments[2].([]byte) == nil {
		return s.list, arguments
	}
	if arguments[1].([]byte) == nil {
		arguments[1] = afterAll
	}
	fixed := fixedParts(f)
	for _, part := range fixed {
		arguments = append(arguments, part)
	}
	return s.listSteps[len(fixed)-1], append(arguments, key.PrefixEnd(fixed[len(fixed)-1]))
}

// fixedParts are the texts that follow the wildcards of a filter in a key: after each all that is fixed before the next one. The last
// is not empty: wildcards that end the key leave nothing out.
func fixedParts(f *driver.Filter) (parts [][]byte) {
	for _, unit := range []string{f.Group, f.Kind, f.Partition, f.Namespace} {
		switch n := len(parts); {
		case unit == storage.Wildcard:
			parts = append(parts, []byte{})
		case n > 0:
			parts[n-1] = append(append(parts[n-1], unit...), 0)
		}
	}
	if n := len(parts); f.NamePrefix != "" {
		parts[n-1] = append(parts[n-1], f.NamePrefix...)
	}
	for n := len(parts); len(parts[n-1]) == 0; n-- {
		parts = parts[:n-1]
	}
	return parts
}
