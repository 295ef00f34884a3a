#!/usr/bin/env bash
# Installs Debian packages when this is a Debian machine and we are root; otherwise says what is missing.
#
#   tools/apt-install.sh PACKAGE...
#
# The package lists are refreshed first: the lists of a machine image are usually older than the mirror, and a stale
# list names files that are gone. A mirror has bad moments, so each step is tried several times.
set -euo pipefail
[ -e /proc/self/fd/0 ] || exec </dev/null

if ! command -v apt-get >/dev/null; then
	echo "missing: $* (this machine has no apt-get: install the equivalents by hand)" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "missing: $*; run: sudo apt-get install $*" >&2
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a
apt=(apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)

try() {
	local n
	for n in 1 2 3 4; do
		"$@" </dev/null && return 0
		echo "attempt $n failed: $*" >&2
		sleep $((n * 3))
	done
	return 1
}

# One broken third-party source must not stop us: apt-get install has the last word.
try "${apt[@]}" update >/dev/null || echo "apt-get update failed; going on with the lists there are" >&2
dpkg --configure -a </dev/null >/dev/null || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing $*" >&2
try "${apt[@]}" install -y --no-install-recommends "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; exit 1; }
