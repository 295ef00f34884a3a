#!/usr/bin/env bash
# What `make demo` shows: a store in one SQLite file, filled from manifests, listed, watched from another process, and asked
# who owns what. Every step is checked: the script fails when an answer is not the expected one.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
watcher=
clean_up() {
	[ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
	rm -rf "$dir"
}
trap clean_up EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
fail() {
	echo "demo: $*" >&2
	exit 1
}
# expect WHAT COUNT PATTERN FILE: the file has so many lines with the pattern.
expect() {
	local found
	found=$(grep -c -e "$3" "$4" || true)
	[ "$found" = "$2" ] || fail "$1: expected $2, found $found"
}
# next_event PATTERN: waits for the next line of the watch, shows it, and demands the pattern.
next_event() {
	local line
	read -r -t 60 line <&"$events" || fail "the watch said nothing"
	echo "  $line"
	grep -q -e "$1" <<<"$line" || fail "expected an event with $1"
}

say "go build -o bin/ashlar ./cmd/ashlar"
go build -o bin/ashlar ./cmd/ashlar
bin/ashlar version
export ASHLAR_STORE="sqlite://$dir/store.db"

say "ashlar apply -f examples/boutique"
bin/ashlar apply -f examples/boutique | tee "$dir/created"
total=$(wc -l <"$dir/created")
[ "$total" -ge 25 ] || fail "expected 25 resources at least, found $total"
expect created "$total" ' created$' "$dir/created"

say "ashlar apply -f examples/boutique, again"
bin/ashlar apply -f examples/boutique >"$dir/unchanged"
expect unchanged "$total" ' unchanged$' "$dir/unchanged"
echo "$total resources unchanged"

say "ashlar types"
bin/ashlar types | tee "$dir/types"
expect "a line for Deployments" 1 '^apps/Deployment  *5$' "$dir/types"

say "ashlar list '*' -n boutique --limit 12"
bin/ashlar list '*' -n boutique --limit 12 | tee "$dir/listed"
expect "rows and a head" 13 . "$dir/listed"
bin/ashlar list '*' -A -o json >"$dir/json"
expect "resources in the list" "$total" '^{"id":{.*}$' "$dir/json"

say "ashlar owned apps/Deployment storefront -n boutique --recursive"
bin/ashlar owned apps/Deployment storefront -n boutique --recursive | tee "$dir/owned"
expect ReplicaSets 1 '^apps/ReplicaSet ' "$dir/owned"
expect Pods 3 '^  core/Pod ' "$dir/owned"

say "ashlar watch core/ConfigMap -n boutique --prefix banner, while another process applies, changes and deletes one"
exec {events}< <(exec bin/ashlar watch core/ConfigMap -n boutique --prefix banner)
watcher=$!
next_event '^synced'
banner() {
	printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: banner, namespace: boutique}\ndata: {text: "%s"}\n' "$1" |
		bin/ashlar apply -f -
}
banner "Opening soon"
next_event '^upsert .*banner$'
banner "Open!"
next_event '^upsert .*banner$'
bin/ashlar delete core/ConfigMap banner -n boutique
next_event '^delete .*banner$'
kill -INT "$watcher"
wait "$watcher" || fail "the watch did not end well"
watcher=

say "ashlar delete apps/Deployment payments -n boutique --cascade"
bin/ashlar delete apps/Deployment payments -n boutique --cascade | tee "$dir/deleted"
expect deleted 3 ' deleted$' "$dir/deleted"
code=0
bin/ashlar get apps/Deployment payments -n boutique 2>"$dir/gone" || code=$?
[ "$code" = 3 ] || fail "expected exit code 3 for what is gone, found $code"
cat "$dir/gone"

say "All as expected."
