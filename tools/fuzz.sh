#!/usr/bin/env bash
# Runs every fuzz test for FUZZTIME, those of the packages PKG and of names that match FUZZ. Each package is built once.
#
# With SMOKE set, the binaries are built as other tests are, with the race detector and without instrumentation: mutation then goes by
# chance alone, but nothing has to be compiled anew, which takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
bin=$PWD/.cache/fuzz
mkdir -p "$bin"
instrument=-fuzz=.
[ -z "${SMOKE:-}" ] || instrument=-race

# fuzz TARGET DIR BINARY: it runs in the package's folder, where it leaves what it finds under testdata/fuzz.
fuzz() {
	(cd "$2" && "$3" -test.run '^$' -test.fuzz "^$1\$" -test.fuzztime "${FUZZTIME:-30s}" \
		-test.parallel "${FUZZPARALLEL:-$(nproc)}" -test.fuzzcachedir "${3%.test}.corpus") 2>&1 |
		grep -v 'not built with coverage instrumentation' | tee "$bin/log" && return
	# At times Go takes the end of the fuzzing time itself for a failure. One that it found has an input.
	grep -q '^ *context deadline exceeded$' "$bin/log" && ! grep -q 'Failing input' "$bin/log"
}

for dir in $($go list -f '{{.Dir}}' "${PKG:-./...}"); do
	targets=$(cat "$dir"/*_test.go 2>/dev/null | grep -oE '^func Fuzz[A-Za-z0-9_]+' | cut -c6- | grep -E "${FUZZ:-.}" | sort -u || true)
	[ -n "$targets" ] || continue
	name=$(realpath --relative-to=. "$dir" | tr / -)
	$go test -c "$instrument" -o "$bin/$name.test" "$dir"
	for target in $targets; do
		echo "== $name $target"
		fuzz "$target" "$dir" "$bin/$name.test"
	done
done
