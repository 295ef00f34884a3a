#!/usr/bin/env bash
# What `make demo-serve` shows: a server of resources on SQLite, written to by curl, watched and asked by the command line through it, and a
# deletion that takes what was owned with it. Every step is checked: the script fails when an answer is not the expected one.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
server=
watcher=
clean_up() {
	for process in $watcher $server; do kill "$process" 2>/dev/null || true; done
	rm -rf "$dir"
}
trap clean_up EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
fail() {
	echo "demo: $*" >&2
	[ ! -s "$dir/log" ] || tail -n 5 "$dir/log" >&2
	exit 1
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

say "ashlar serve --any-type --store sqlite://…/store.db"
bin/ashlar serve --any-type --store "sqlite://$dir/store.db" --listen 127.0.0.1:0 --http 127.0.0.1:0 --log-format json 2>"$dir/log" &
server=$!
address() { sed -n "s/.*\"msg\":\"listening\".*\"$1\":\"\([^\"]*\)\".*/\1/p" "$dir/log"; }
for _ in $(seq 240); do
	[ -z "$(address http)" ] || break
	kill -0 "$server" 2>/dev/null || fail "the server has ended"
	sleep 0.25
done
grpc=$(address grpc) http=$(address http)
[ -n "$http" ] || fail "the server does not listen"
echo "gRPC at $grpc, HTTP at http://$http/api"
[ "$(curl -fsS "http://$http/readyz")" = ready ] || fail "the server is not ready"

# put KIND NAME BODY: writes a resource and shows its uid.
put() {
	echo "curl -X PUT http://$http/api/demo/v1/$1/$2 -d '$3'"
	curl -fsS -X PUT -H 'Content-Type: application/json' "http://$http/api/demo/v1/$1/$2" -d "$3" >"$dir/answer" || fail "curl could not write $1 $2"
	uid=$(sed -n 's/.*"uid": *"\([^"]*\)".*/\1/p' "$dir/answer" | head -n1)
	[ -n "$uid" ] || fail "the answer has no uid"
	echo "  uid $uid"
}
data='{"@type":"type.googleapis.com/google.protobuf.StringValue","value":"'

say "ashlar watch 'demo/*' --server $grpc, while curl writes"
exec {events}< <(exec bin/ashlar watch 'demo/*' --server "$grpc" -o name)
watcher=$!
next_event '^synced'
put Artist holly "{\"data\":${data}Holly Herndon\"}}"
next_event '^upsert demo/Artist/holly$'
owner='"owner":{"name":"holly","type":{"group":"demo","groupVersion":"v1","kind":"Artist"},"tenancy":{"partition":"default","namespace":"default"}}'
put Album proto "{$owner,\"data\":${data}PROTO\"}}"
next_event '^upsert demo/Album/proto$'
put Album platform "{$owner,\"data\":${data}Platform\"}}"
next_event '^upsert demo/Album/platform$'

say "ashlar owned demo/Artist holly --server $grpc"
bin/ashlar owned demo/Artist holly --server "$grpc" | tee "$dir/owned"
[ "$(grep -c '^demo/Album ' "$dir/owned")" = 2 ] || fail "expected two albums"

say "curl -X DELETE http://$http/api/demo/v1/Artist/holly: the server deletes what it owned"
curl -fsS -X DELETE "http://$http/api/demo/v1/Artist/holly"
next_event '^delete demo/Artist/holly$'
next_event '^delete demo/Album/'
next_event '^delete demo/Album/'
code=0
bin/ashlar get demo/Album proto --server "$grpc" 2>"$dir/gone" || code=$?
[ "$code" = 3 ] || fail "expected exit code 3 for what is gone, found $code"
cat "$dir/gone"

say "kill -TERM: the server drains, and the watch waits for it to come back"
kill -TERM "$server"
wait "$server" || fail "the server did not end well"
server=
kill -INT "$watcher"
wait "$watcher" || fail "the watch did not end well"
watcher=

say "All as expected."
