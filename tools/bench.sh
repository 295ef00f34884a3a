#!/usr/bin/env bash
# Measures the adapters side by side with the raw drivers (bench/doc.go says how to read it).
#
#   BACKEND    memory, sqlite, postgres, etcd, dynamodb, or migrate (moving a store); all of them if unset. Not among them: kine, which
#              compares `ashlar serve etcd` with kine on SQLite and Postgres, and builds kine first, for minutes; and kubernetes, which runs
#              Kubernetes' own benchmarks of its storage in an etcd and in ours (its module takes minutes to compile; ONLY is Write
#              or List; BENCHTIME is how many operations, such as 500x, so that each side does the same)
#   BENCHTIME  how long each turn takes (1s)
#   ROUNDS     how many turns each side gets (5)
#   ASHLAR_POSTGRES_VERSION, ASHLAR_ETCD_VERSION, …  another release than the pinned one (internal/test/images/versions.env)
#   ONLY       a regular expression: only what it matches, such as write-500/16
#   GROW       1: instead, fill a store with 1,000 to 1,000,000 resources, measure each size, and plot it in docs/assets/growth (without ONLY)
#   LARGEST    the largest store of GROW (1000000; less on a backend that does not take so many)
#   SMOKE      1: small stores and short turns, about a minute for all, to see that every comparison and plot is made
set -euo pipefail
cd "$(dirname "$0")/.."

grow=''
[ "${GROW:-0}" = 0 ] || grow=Growth
[ "${SMOKE:-0}" = 0 ] || grow="${grow:-(Growth)?}"
tags=integration
case "${BACKEND:-all}" in
memory | mem) pattern=Mem tags=none ;;
sqlite) pattern=SQLite tags=none ;;
postgres) pattern=Postgres ;;
etcd) pattern=Etcd ;;
dynamodb) pattern=DynamoDB ;;
migrate) pattern=Migrate ;;
kine) pattern=Kine ;;
kubernetes) pattern=Upstream ;;
all) pattern='(Mem|SQLite|Postgres|Etcd|DynamoDB|Migrate)' ;;
*)
	echo "bench: unknown BACKEND=$BACKEND, expected memory, sqlite, postgres, etcd, dynamodb, migrate, kine or kubernetes" >&2
	exit 2
	;;
esac
if [ "$tags" = integration ]; then
	tools/docker.sh
	tools/images.sh
fi
# The SQLite files have to stand on a real disk, which the system's temporary folder may not be.
mkdir -p .cache
ASHLAR_BENCH_DIR=$PWD/.cache
export ASHLAR_BENCH_DIR
if [ "${BACKEND:-}" = kubernetes ]; then
	pods=''
	[ "${SMOKE:-0}" = 0 ] || BENCHTIME=1x ROUNDS=1 pods='-updated 100 -listed 200'
	cd etcdserver/kubernetes
	# shellcheck disable=SC2086
	go test -tags integration -run '^$' -bench "^BenchmarkUpstream${ONLY:-}" -benchtime "${BENCHTIME:-500x}" -timeout 6h . \
		-rounds "${ROUNDS:-3}" $pods | awk -f ../../tools/kubernetes-ratios.awk
	exit
fi
if [ "${BACKEND:-}" = kine ]; then
	CGO_ENABLED=0 go build -o .cache/bin/ashlar ./cmd/ashlar
	(cd tools/kine && GOBIN=$ASHLAR_BENCH_DIR/bin go install tool)
	export ASHLAR_BENCH_ASHLAR=$ASHLAR_BENCH_DIR/bin/ashlar ASHLAR_BENCH_KINE=$ASHLAR_BENCH_DIR/bin/kine
fi
plots=''
if [ "${SMOKE:-0}" != 0 ]; then
	plots=$ASHLAR_BENCH_DIR/growth # nobody looks at them
	rm -rf "$plots"
elif [ -n "$grow" ] && [ -z "${ONLY:-}" ]; then
	plots=$PWD/docs/assets/growth
fi
[ -z "$plots" ] || mkdir -p "$plots"
cd bench
export CGO_ENABLED=0 # as make build has it, which compiles most of this
[ "${SMOKE:-0}" = 0 ] || go test ./growth/... ./ratios
go test -tags "$tags" -run '^$' -bench "^Benchmark$grow$pattern\$" -benchtime 1x -timeout 6h . \
	-turn "${BENCHTIME:-1s}" -rounds "${ROUNDS:-5}" -only "${ONLY:-}" -smoke="${SMOKE:-0}" -plots "$plots" -largest "${LARGEST:-1000000}"
if [ -n "$plots" ]; then
	shopt -s nullglob # BACKEND=migrate has no growth
	go run ./growth/plot "$plots"/*.json
fi
