#!/usr/bin/env bash
# Fails when the checked-in generated code is not what the .proto files and the pinned tools give.
#
#   tools/check-generate.sh DIRECTORY-OF-THE-TOOLS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

PATH="$1:$PATH" buf generate --config resourcepb/buf.yaml --template resourcepb/buf.gen.yaml --output "$fresh"
status=0
while IFS= read -r file; do
	if ! cmp -s "$fresh/$file" "$file"; then
		echo "$file is not current: run make generate and commit the result" >&2
		diff -u "$file" "$fresh/$file" | head -n 20 >&2 || true
		status=1
	fi
done < <({ (cd "$fresh" && find . -name '*.pb.go' | sed 's|^\./||'); find . -path ./.cache -prune -o -name '*.pb.go' -print | sed 's|^\./||'; } | sort -u)
exit $status
