#!/usr/bin/env bash
# Prints the checksums of the generated code and of what it is generated from: the .proto files, buf's settings and the pinned generators.
# make generate keeps them in resourcepb/generated.sum, so that CI sees a missed make generate without building buf, which takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C
{
	echo tools/go.mod
	find . -path ./.cache -prune -o \( -name '*.proto' -o -name '*.pb.go' -o -name 'buf*.yaml' \) -print | sed 's|^\./||'
} | sort | xargs sha256sum
