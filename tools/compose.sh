#!/usr/bin/env bash
# Runs Docker Compose on the repository's docker-compose.yaml, whichever of its two forms this machine has; on Debian as
# root it installs one where there is none.
#
#   tools/compose.sh ARGUMENT...   as docker compose ARGUMENT...
#   tools/compose.sh --wait        returns when every service is healthy (the older form has no such option)
set -euo pipefail
[ -e /proc/self/fd/0 ] || exec </dev/null
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

if docker compose version >/dev/null 2>&1; then
	compose=(docker compose)
else
	command -v docker-compose >/dev/null || "$here/apt-install.sh" docker-compose
	compose=(docker-compose)
fi
compose+=(-p ashlar -f docker-compose.yaml)

if [ "${1:-}" != --wait ]; then
	exec "${compose[@]}" "$@"
fi

for service in $("${compose[@]}" config --services); do
	id=$("${compose[@]}" ps -q "$service")
	[ -n "$id" ] || continue
	for n in $(seq 180); do
		health=$(docker inspect -f '{{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{end}}' "$id")
		case $health in
		"running healthy") break ;;
		exited*) docker logs --tail 20 "$id" >&2; echo "$service has ended" >&2; exit 1 ;;
		esac
		[ "$n" != 180 ] || { echo "$service is not healthy: $health" >&2; exit 1; }
		sleep 1
	done
	echo "$service is ready at $("${compose[@]}" port "$service" "$(docker inspect -f '{{range $p, $b := .NetworkSettings.Ports}}{{if $b}}{{$p}} {{end}}{{end}}' "$id" | cut -d/ -f1)")"
done
