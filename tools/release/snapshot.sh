#!/usr/bin/env bash
# Builds the files of a release of this checkout into dist/, without publishing them, and checks them.
set -euo pipefail
cd "$(dirname "$0")/../.."

export PATH=$1:$PATH
goreleaser release --snapshot --clean
for os in linux darwin windows; do
	for arch in amd64 arm64; do
		archive=$(ls dist/ashlar_*_"$os"_"$arch".*[pz])
		case $archive in
		*.zip) list=$(unzip -Z1 "$archive") ;;
		*) list=$(tar -tzf "$archive") ;;
		esac
		for file in LICENSE README.md CHANGELOG.md completions/ashlar.bash man/ashlar.1; do
			grep -q "^$file$" <<<"$list" || { echo "snapshot: $archive lacks $file" >&2; exit 1; }
		done
		ls dist/*"$os"_"$arch".cdx.json >/dev/null
	done
done
(cd dist && sha256sum --quiet -c checksums.txt)
echo "snapshot: $(ls dist/*.tar.gz dist/*.zip | wc -l) archives, with bills of materials and checksums, in dist/"
