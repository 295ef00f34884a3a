#!/usr/bin/env bash
# Builds the command line of the commit PREVIOUS and of this checkout, and runs the tests of a rolling upgrade with both.
set -euo pipefail
cd "$(dirname "$0")/.."

previous=${PREVIOUS:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [ -z "$previous" ]; then
	echo "upgrade-test: no release is tagged: name a commit, make test-upgrade PREVIOUS=<commit>" >&2
	exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/source"
git archive "$previous" | tar -x -C "$folder/source"
(cd "$folder/source" && "${GO:-go}" build -buildvcs=false -o "$folder/previous" ./cmd/ashlar)
rm -rf "$folder/source"
"${GO:-go}" build -o "$folder/current" ./cmd/ashlar
echo "upgrade from $(git rev-parse --short "$previous") to this checkout"
export ASHLAR_PREVIOUS=$folder/previous ASHLAR_CURRENT=$folder/current
export ASHLAR_TORTURE_FOR=${FOR:-1m} ASHLAR_TORTURE_SEED=${SEED:-random}
"$@"
