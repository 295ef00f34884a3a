#!/usr/bin/env bash
# Writes the completions and man pages of the command line into a folder, for the archives of a release.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$1
rm -rf "$folder"
mkdir -p "$folder/completions" "$folder/man"
program=$(mktemp)
trap 'rm -f "$program"' EXIT
"${GO:-go}" build -o "$program" ./cmd/ashlar
for shell in bash zsh fish powershell; do
	"$program" completion "$shell" >"$folder/completions/ashlar.$shell"
done
# The date of the pages: two builds of one commit create the same files.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) "$program" man "$folder/man"
