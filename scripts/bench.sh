#!/usr/bin/env bash
# Measures the adapters side by side with the raw drivers (bench/doc.go says how to read it).
#
#   BACKEND    memory, sqlite, postgres, etcd, dynamodb, or migrate (moving a store); all of them if unset
#   BENCHTIME  how long each turn takes (1s)
#   ROUNDS     how many turns each side gets (5)
#   ASHLAR_POSTGRES_VERSION, ASHLAR_ETCD_VERSION, …  another release than the pinned one (internal/images/versions.env)
#   ONLY       a regular expression: only what it matches, such as write-500/16
#   SMOKE      1: small stores and short turns, less than a minute for all, to see that every comparison runs
set -euo pipefail
cd "$(dirname "$0")/.."

tags=integration
case "${BACKEND:-all}" in
memory | mem) pattern=Mem tags=none ;;
sqlite) pattern=SQLite tags=none ;;
postgres) pattern=Postgres ;;
etcd) pattern=Etcd ;;
dynamodb) pattern=DynamoDB ;;
migrate) pattern=Migrate ;;
all) pattern='(Mem|SQLite|Postgres|Etcd|DynamoDB|Migrate)' ;;
*)
	echo "bench: unknown BACKEND=$BACKEND, expected memory, sqlite, postgres, etcd, dynamodb or migrate" >&2
	exit 2
	;;
esac
if [ "$tags" = integration ]; then
	scripts/docker.sh
	scripts/images.sh
fi
# The SQLite files have to stand on a real disk, which the system's temporary folder may not be.
mkdir -p .cache
ASHLAR_BENCH_DIR=$PWD/.cache
export ASHLAR_BENCH_DIR
cd bench
exec go test -tags "$tags" -run '^$' -bench "^Benchmark$pattern\$" -benchtime 1x -timeout 2h . \
	-turn "${BENCHTIME:-1s}" -rounds "${ROUNDS:-5}" -only "${ONLY:-}" -smoke="${SMOKE:-0}"
