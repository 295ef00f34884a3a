#!/usr/bin/env bash
# Provides the container images of the integration tests, in the versions internal/test/images/versions.env pins.
#
#   tools/images.sh                  all of them
#   tools/images.sh postgres etcd    some (postgres, etcd, dynamodb, pgbouncer)
#
# What is there already is left alone. What is missing is pulled; where no registry can be reached, a stand-in is built
# under the same name: Debian's mirror for the base, Maven artifacts for Postgres and DynamoDB Local, Go modules for
# etcd. No build step runs anything inside a container, so none needs its network, proxy or certificates set up.
#
#   ASHLAR_IMAGES=pull|build           only pull, or only build
#   ASHLAR_POSTGRES_VERSION=16.15 …    another version
set -euo pipefail
[ -e /proc/self/fd/0 ] || exec </dev/null

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
standin=$root/internal/test/images/standin
state=${ASHLAR_STATE_DIR:-${XDG_STATE_HOME:-${HOME:-/root}/.local/state}/ashlar}
mode=${ASHLAR_IMAGES:-auto}

# The environment wins over the pinned version.
while IFS='=' read -r name value; do
	[ -n "${!name:-}" ] || declare "$name=${value//\"/}"
done < <(grep -E '^[A-Z_]+=' "$root/internal/test/images/versions.env")

say() { echo "images: $*" >&2; }
die() { say "$*"; exit 1; }

try() {
	local n
	for n in 1 2 3; do
		"$@" </dev/null && return 0
		say "attempt $n failed: $*"
		sleep $((n * 3))
	done
	return 1
}

image() {
	case $1 in
	postgres) echo "postgres:$ASHLAR_POSTGRES_VERSION" ;;
	etcd) echo "quay.io/coreos/etcd:$ASHLAR_ETCD_VERSION" ;;
	dynamodb) echo "amazon/dynamodb-local:$ASHLAR_DYNAMODB_VERSION" ;;
	pgbouncer) echo "edoburu/pgbouncer:$ASHLAR_PGBOUNCER_VERSION" ;;
	*) die "no image is called $1" ;;
	esac
}

# sum NAME: identifies what a stand-in is built from, so that one built from older sources is built again.
sum() {
	(cd "$standin" && find base "$1" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
}

# present NAME: whether the image is there, and if a stand-in, a current one.
present() {
	local label
	label=$(docker image inspect --format '{{index .Config.Labels "dev.ashlar.standin"}}' "$(image "$1")" 2>/dev/null) || return 1
	[ -z "$label" ] || [ "$label" = "$(sum "$1")" ]
}

need() { # need COMMAND PACKAGE...
	local command=$1
	shift
	command -v "$command" >/dev/null || "$root/tools/apt-install.sh" "$@" || die "$command is needed to build the stand-ins"
	hash -r
}

# pull NAME: the first attempt is given little time, since a network that swallows packets answers nothing at all; once
# a registry has answered, a pull may take as long as it takes.
reachable=unknown
pull() {
	local limit=45
	[ "$mode" != build ] && [ "$reachable" != no ] || return 1
	if [ "$reachable" = unknown ]; then
		# The manifest is small: this is quick wherever a registry can be reached.
		if ! timeout 20 docker manifest inspect "$(image "$1")" >/dev/null 2>"$work/pull.err"; then
			if ! timeout "$limit" docker pull -q "$(image "$1")" >/dev/null 2>"$work/pull.err"; then
				say "$(image "$1") cannot be pulled: $(tail -n1 "$work/pull.err" | cut -c1-200)"
				# A registry that answers "no such image" is still one; anything else means there is none for us.
				grep -qiE 'manifest unknown|not found: manifest|toomanyrequests' "$work/pull.err" || reachable=no
				return 1
			fi
		fi
		reachable=yes
	fi
	say "pulling $(image "$1")"
	timeout 900 docker pull -q "$(image "$1")" >/dev/null 2>"$work/pull.err" && return 0
	say "$(image "$1") cannot be pulled: $(tail -n1 "$work/pull.err" | cut -c1-200)"
	return 1
}

# build NAME CONTEXT ARG...: without BuildKit where its client plug-in is missing, as in Debian's packages.
build() {
	local name=$1 context=$2
	shift 2
	local kit=1
	docker buildx version >/dev/null 2>&1 || kit=0
	say "building $(image "$name")"
	DOCKER_BUILDKIT=$kit docker build --network none --label "dev.ashlar.standin=$(sum "$name")" \
		--build-arg "BASE=$base" "$@" -t "$(image "$name")" "$context" >"$work/build.log" 2>&1 ||
		{ tail -n 30 "$work/build.log" >&2; die "docker build of $name failed"; }
}

# The base of all stand-ins: Debian with what they run on (Java, the Postgres client programs, PgBouncer), by
# debootstrap from the mirror that this machine's apt uses.
base=
suite=bookworm
packages=openjdk-17-jre-headless,postgresql-client-15,pgbouncer,locales
make_base() {
	base=ashlar/standin-base:$(cd "$standin" && { echo "$suite $packages"; cat base/*; } | sha256sum | cut -c1-16)
	! docker image inspect "$base" >/dev/null 2>&1 || return 0
	[ "$(id -u)" = 0 ] || die "no registry can be reached, and building stand-ins needs root (debootstrap)"
	[ -e /etc/debian_version ] || die "no registry can be reached, and stand-ins can be built on Debian only"
	need debootstrap debootstrap

	local mirror='' proxy ca
	mirror=$(. /etc/os-release && apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
		awk -v c="${VERSION_CODENAME:-}" '$2 == c && $3 == "main" && $4 == "Debian" { print $1; exit }') || true
	case $mirror in http://* | https://*) ;; *) mirror= ;; esac
	eval "$(apt-config shell proxy Acquire::http::Proxy ca Acquire::https::CaInfo 2>/dev/null)" || true
	if [ -n "${proxy:-}" ] && [ "${proxy:-}" != DIRECT ]; then
		export http_proxy=${http_proxy:-$proxy} https_proxy=${https_proxy:-$proxy}
	fi
	if [ -n "${ca:-}" ]; then
		echo "ca_certificate = $ca" >"$work/wgetrc"
		export WGETRC=$work/wgetrc
	fi

	say "building the base of the stand-ins from Debian packages (about a minute)"
	local n
	for n in 1 2 3; do
		drop_root
		if debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" ${mirror:+"$mirror"} \
			</dev/null >"$work/debootstrap.log" 2>&1; then
			break
		fi
		tail -n 5 "$work/debootstrap.log" >&2
		[ ! -e "$work/root/debootstrap/debootstrap.log" ] || tail -n 10 "$work/root/debootstrap/debootstrap.log" >&2
		[ "$n" != 3 ] || die "debootstrap failed"
		sleep $((n * 5))
	done
	# The locale of the official image: not "C", so that an order that depends on the database's collation shows.
	chroot "$work/root" localedef -i en_US -c -f UTF-8 -A /usr/share/locale/locale.alias en_US.UTF-8 </dev/null
	chroot "$work/root" bash -c 'getent passwd postgres >/dev/null || useradd -r -U -d /var/lib/postgresql -s /bin/bash postgres; mkdir -p /var/lib/postgresql; chown postgres:postgres /var/lib/postgresql'
	rm -rf "$work/root/var/cache/apt/archives" "$work/root/var/lib/apt/lists" "$work/root/usr/share/doc" "$work/root/usr/share/man"
	mkdir -p "$work/root/var/cache/apt/archives/partial" "$work/root/var/lib/apt/lists/partial"
	tar -C "$work/root" --one-file-system --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -c . |
		docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' - "$base" >/dev/null
	drop_root
}

# drop_root removes the tree, but never through something mounted in it.
drop_root() {
	[ -d "$work/root" ] || return 0
	local m
	for m in $(awk -v r="$work/root/" 'index($2, r) == 1 { print $2 }' /proc/mounts | sort -r); do
		umount -l "$m"
	done
	rm -rf --one-file-system "$work/root"
}

# artifact GROUP:NAME:VERSION DIR: one file out of the Maven repository this machine uses.
artifact() {
	need mvn maven default-jre-headless
	try mvn -q -B -ntp -Dstyle.color=never dependency:copy "-Dartifact=$1" "-DoutputDirectory=$2" >&2 || die "$1 cannot be fetched with Maven"
}

build_postgres() {
	local arch version=$ASHLAR_POSTGRES_VERSION
	case $(uname -m) in
	x86_64) arch=amd64 ;;
	aarch64) arch=arm64v8 ;;
	*) die "no Postgres artifact for $(uname -m)" ;;
	esac
	need unzip unzip
	need xz xz-utils
	mkdir -p "$work/postgres/pgsql"
	artifact "io.zonky.test.postgres:embedded-postgres-binaries-linux-$arch:$version.0" "$work/postgres/jar"
	unzip -qo "$work"/postgres/jar/*.jar '*.txz' -d "$work/postgres/jar"
	tar -xJf "$work"/postgres/jar/*.txz -C "$work/postgres/pgsql"
	rm -rf "$work/postgres/jar"
	cp "$standin"/postgres/* "$work/postgres/"
	build postgres "$work/postgres" --build-arg "MAJOR=${version%%.*}"
	rm -rf "$work/postgres"
}

build_etcd() {
	mkdir -p "$work/etcd"
	cp "$standin"/etcd/* "$work/etcd/"
	(
		cd "$work/etcd"
		export GOFLAGS='-buildvcs=false -mod=mod' CGO_ENABLED=0 GOWORK=off
		try go get -tool "go.etcd.io/etcd/server/v3@$ASHLAR_ETCD_VERSION" "go.etcd.io/etcd/etcdctl/v3@$ASHLAR_ETCD_VERSION" \
			"go.etcd.io/etcd/etcdutl/v3@$ASHLAR_ETCD_VERSION" >&2
		try go build -ldflags='-s -w' -o etcd go.etcd.io/etcd/server/v3
		try go build -ldflags='-s -w' -o etcdctl go.etcd.io/etcd/etcdctl/v3
		try go build -ldflags='-s -w' -o etcdutl go.etcd.io/etcd/etcdutl/v3
	) || die "etcd cannot be built from its Go modules"
	build etcd "$work/etcd"
	rm -rf "$work/etcd"
}

build_dynamodb() {
	mkdir -p "$work/dynamodb"
	cp "$standin"/dynamodb/* "$work/dynamodb/"
	need mvn maven default-jre-headless
	try mvn -q -B -ntp -Dstyle.color=never -f "$work/dynamodb/pom.xml" "-Ddynamodb.version=$ASHLAR_DYNAMODB_VERSION" \
		dependency:copy-dependencies "-DoutputDirectory=$work/dynamodb/DynamoDBLocal_lib" -DincludeScope=runtime >&2 ||
		die "DynamoDB Local cannot be fetched with Maven"
	build dynamodb "$work/dynamodb"
	rm -rf "$work/dynamodb"
}

build_pgbouncer() {
	build pgbouncer "$standin/pgbouncer"
}

[ $# -gt 0 ] || set -- postgres etcd dynamodb pgbouncer
missing=()
for name; do
	present "$name" || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0

mkdir -p "$state"
exec 9>"$state/images.lock"
flock -w 1500 9 || die "another run has held $state/images.lock for too long"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/ashlar-images.XXXXXX")
trap 'drop_root; rm -rf --one-file-system "$work"' EXIT

for name in "${missing[@]}"; do
	if present "$name"; then # another run was quicker
		continue
	fi
	if pull "$name"; then
		continue
	fi
	[ "$mode" != pull ] || die "$(image "$name") cannot be pulled"
	[ -n "$base" ] || make_base
	"build_$name"
done
