#!/usr/bin/env bash
# Builds the container image of the server, ashlar:dev (or ASHLAR_IMAGE), of the Dockerfile: a static binary on nothing, so that no registry
# has to be reached.
set -euo pipefail
cd "$(dirname "$0")/.."

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/data" "$context/tmp"
CGO_ENABLED=0 "${GO:-go}" build -ldflags='-s -w' -o "$context/ashlar" ./cmd/ashlar
# By these the server trusts databases and receivers of traces with TLS. A machine without them makes an image that trusts nobody else.
: >"$context/ca-certificates.crt"
for roots in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	[ -r "$roots" ] || continue
	cp "$roots" "$context/ca-certificates.crt"
	break
done
cp Dockerfile "$context/"
kit=1
docker buildx version >/dev/null 2>&1 || kit=0
DOCKER_BUILDKIT=$kit docker build --network none -q -t "${ASHLAR_IMAGE:-ashlar:dev}" "$context" >/dev/null
docker image inspect --format "{{index .RepoTags 0}}: {{.Size}} bytes, runs as {{.Config.User}}" "${ASHLAR_IMAGE:-ashlar:dev}"
