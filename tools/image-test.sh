#!/usr/bin/env bash
# Runs the image of the server and looks whether it is what it promises: it is not root, serves, keeps what it was given, and ends well.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${ASHLAR_IMAGE:-ashlar:dev}
name=ashlar-image-test-$$
clean_up() { docker rm -fv "$name" >/dev/null 2>&1 || true; }
trap clean_up EXIT
fail() {
	echo "image: $*" >&2
	docker logs --tail 20 "$name" >&2 || true
	exit 1
}

# The server's own certificate is not what is tested here, so it goes without.
docker run -d --name "$name" --read-only --cap-drop ALL -p 127.0.0.1::8500 -p 127.0.0.1::8502 "$image" \
	serve --any-type --insecure --listen :8502 --http :8500 >/dev/null
ready() {
	http=$(docker port "$name" 8500/tcp | head -n1)
	grpc=$(docker port "$name" 8502/tcp | head -n1)
	for _ in $(seq 120); do
		[ "$(curl -fsS "http://$http/readyz" 2>/dev/null || true)" != ready ] || return 0
		sleep 0.5
	done
	fail "it does not become ready"
}
ready
user=$(docker inspect -f '{{.Config.User}}' "$name")
[ "${user%%:*}" -gt 0 ] || fail "it runs as $user"
ashlar() { docker run --rm --network "container:$name" -i "$image" "$@" --server 127.0.0.1:8502; }
[ "$(ashlar apply -f - <<<'{"id":{"name":"a","type":{"group":"core","groupVersion":"v1","kind":"ConfigMap"}}}')" = "core/ConfigMap default/a created" ] ||
	fail "nothing can be applied"
docker stop -t 60 "$name" >/dev/null
code=$(docker inspect -f '{{.State.ExitCode}}' "$name")
[ "$code" = 0 ] || fail "it ended with exit code $code"
docker start "$name" >/dev/null
ready
[ "$(ashlar list '*' -o name)" = core/ConfigMap/a ] || fail "what was stored is gone"
echo "image: $image serves as user $user, at $grpc by gRPC, keeps what it is given, and ends well"
