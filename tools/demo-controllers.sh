#!/usr/bin/env bash
# What `make demo-controllers` shows: the deployment controller of examples/deployment in two processes on one SQLite file. It scales, rolls out a
# new image, and one process takes over from the other, which is killed. The script fails when an answer is not the expected one.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
first=
second=
clean_up() {
	for pid in $first $second; do kill "$pid" 2>/dev/null || true; done
	rm -rf "$dir"
}
trap clean_up EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# pods IMAGE: the number of pods of the storefront with an image.
pods() { bin/ashlar list core/Pod -n boutique -o json | grep -c "storefront:$1\"" || true; }
# until_true WHAT COMMAND...: waits for at most two minutes until the command succeeds.
until_true() {
	local what=$1 end=$((SECONDS + 120))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || {
			echo "demo: not within two minutes: $what" >&2
			exit 1
		}
		sleep 0.2
	done
	echo "  $what"
}
are() { [ "$(pods "$1")" = "$2" ] && [ "$(bin/ashlar list core/Pod -n boutique -o name | grep -c storefront)" = "$2" ]; }
held_by() { bin/ashlar controllers | grep '^deployments' | grep -q " $1 "; }
apply() { sed "$1" examples/boutique/storefront.yaml | sed '/^---/,$d' | bin/ashlar apply -f - >/dev/null; }

say "go build -o bin ./cmd/ashlar ./examples/deployment"
mkdir -p bin
go build -o bin ./cmd/ashlar ./examples/deployment
export ASHLAR_STORE="sqlite://$dir/store.db"
bin/ashlar apply -f examples/boutique >/dev/null

say "bin/deployment -name first & bin/deployment -name second &"
bin/deployment -name first -ttl 3s "$ASHLAR_STORE" 2>"$dir/first.log" &
first=$!
until_true "the first process holds the lease of the deployments" held_by first
bin/deployment -name second -ttl 3s "$ASHLAR_STORE" 2>"$dir/second.log" &
second=$!
until_true "three pods of the storefront run version 2.4.1" are 2.4.1 3

say "scale the storefront to 6"
apply 's/replicas: 3/replicas: 6/'
until_true "six pods run version 2.4.1" are 2.4.1 6

say "ashlar controllers"
bin/ashlar controllers

say "kill -9 the first process, and roll out version 2.5.0"
kill -9 "$first"
first=
apply 's/replicas: 3/replicas: 6/; s/storefront:2.4.1/storefront:2.5.0/'
until_true "the second process has taken over" held_by second
until_true "six pods run version 2.5.0" are 2.5.0 6

say "ashlar controllers"
bin/ashlar controllers
