#!/usr/bin/env bash
# Makes sure that a Docker daemon answers.
#
#   tools/docker.sh          uses the running one; on Debian as root installs and starts one, and announces that; else says what to do
#   tools/docker.sh --log    prints where the log of a daemon started here is
#
# ASHLAR_DOCKER=existing never installs or starts anything.
#
# A daemon started here outlives this script and the make that called it. It needs no systemd, and comes back after the
# earlier daemon was killed the hard way: stale pid files, an orphaned containerd and leftover containers are dealt with.
set -euo pipefail
[ -e /proc/self/fd/0 ] || exec </dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${ASHLAR_STATE_DIR:-${XDG_STATE_HOME:-${HOME:-/root}/.local/state}/ashlar}
log=$state/dockerd.log
if [ "${1:-}" = --log ]; then
	echo "$log"
	exit 0
fi

say() { echo "docker: $*" >&2; }

answers() { timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

manual() {
	say "$1"
	say "start Docker and run this again, or give the tests servers of your own:"
	say "  ASHLAR_TEST_POSTGRES_URL, ASHLAR_TEST_ETCD_URL, ASHLAR_TEST_DYNAMODB_URL (see CONTRIBUTING.md)"
	exit 1
}

if command -v docker >/dev/null && answers; then
	exit 0
fi
if [ -n "${DOCKER_HOST:-}" ]; then
	case $DOCKER_HOST in
	unix:///var/run/docker.sock | unix:///run/docker.sock) ;;
	*) manual "DOCKER_HOST is $DOCKER_HOST, and nothing answers there" ;;
	esac
fi
[ "$(uname -s)" = Linux ] || manual "no Docker daemon answers; start Docker Desktop, colima or the like"
if [ "$(id -u)" != 0 ]; then
	if [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
		manual "no permission for /var/run/docker.sock (sudo usermod -aG docker \$USER, then log in again)"
	fi
	manual "no Docker daemon answers and this is not root (sudo systemctl start docker, or sudo $0)"
fi

if [ "${ASHLAR_DOCKER:-}" = existing ]; then
	manual "no Docker daemon answers, and ASHLAR_DOCKER=existing forbids to install or start one"
fi
# announce prints what is about to change on this machine, and how to avoid it. A person at a terminal has time to press Ctrl-C.
announce() {
	local what="start a Docker daemon"
	command -v dockerd >/dev/null || what="install Docker (Debian's docker.io and iptables, by apt-get as root) and start its daemon"
	say "the database tests need Docker and no daemon answers: this will $what on this machine"
	say "to avoid that, run make test-unit (no Docker), start a daemon yourself, or set ASHLAR_DOCKER=existing to fail here instead"
	if [ -t 2 ]; then
		say "Ctrl-C within 5 seconds stops it"
		sleep 5
	fi
}
announce

mkdir -p "$state"
# Two makes at once must not start two daemons.
exec 9>"$state/docker.lock"
flock -w 600 9 || manual "another run has held $state/docker.lock for ten minutes"
if command -v docker >/dev/null && answers; then
	exit 0
fi

if ! command -v dockerd >/dev/null; then
	[ -e /etc/debian_version ] || manual "no Docker engine on this machine"
	say "installing Debian's docker.io"
	"$here/apt-install.sh" docker.io iptables 9>&- || manual "docker.io could not be installed"
fi
if ! command -v docker >/dev/null; then
	# Newer Debian releases ship the client in a package of its own.
	"$here/apt-install.sh" docker-cli 9>&- || manual "docker-cli could not be installed"
	hash -r
fi
command -v dockerd >/dev/null || manual "dockerd is not on the PATH"

# Where an init system looks after Docker, it is the one to start it.
if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
	say "starting docker.service"
	systemctl reset-failed docker.service docker.socket 2>/dev/null || true
	if timeout 120 systemctl start docker.service 2>/dev/null && answers; then
		exit 0
	fi
	say "docker.service did not start; starting dockerd directly"
fi

# is_program PID NAME: whether PID is a living process running NAME. A pid file that outlived its process may well name
# the pid of something else by now, and dockerd then refuses to start.
is_program() {
	[ -n "$1" ] && [ -d "/proc/$1" ] && [ "$(cat "/proc/$1/comm" 2>/dev/null)" = "$2" ] &&
		! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

clear_stale() {
	local pid
	pid=$(cat /var/run/docker.pid 2>/dev/null || true)
	if is_program "$pid" dockerd; then
		# It is alive and does not answer (answers was tried): give it time first, it may be starting.
		local n
		for n in $(seq 30); do
			answers && exit 0
			is_program "$pid" dockerd || break
			sleep 1
		done
		if is_program "$pid" dockerd; then
			say "dockerd ($pid) does not answer; ending it"
			kill "$pid" 2>/dev/null || true
			for n in $(seq 20); do is_program "$pid" dockerd || break; sleep 1; done
			! is_program "$pid" dockerd || kill -9 "$pid" 2>/dev/null || true
			sleep 1
		fi
	fi
	rm -f /var/run/docker.pid
	# A dockerd that was killed leaves its containerd behind. The next one would adopt it, unless it is unwell; a fresh
	# one costs nothing, and finds the containers by their shims.
	pid=$(cat /var/run/docker/containerd/containerd.pid 2>/dev/null || true)
	if is_program "$pid" containerd; then
		kill "$pid" 2>/dev/null || true
		for n in $(seq 10); do is_program "$pid" containerd || break; sleep 1; done
		! is_program "$pid" containerd || kill -9 "$pid" 2>/dev/null || true
	fi
	rm -f /var/run/docker/containerd/containerd.pid /var/run/docker/containerd/containerd.sock \
		/var/run/docker/containerd/containerd.sock.ttrpc
	[ -S /var/run/docker.sock ] && rm -f /var/run/docker.sock
	return 0
}

# A minimal machine may come without any cgroup mounted.
if [ -d /sys/fs/cgroup ] && [ -z "$(ls -A /sys/fs/cgroup 2>/dev/null)" ]; then
	mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || true
fi

# start NAME DIR ARGS...: starts dockerd with DIR in front of the PATH, waits until it answers or has given up.
start() {
	local name=$1 dir=$2 pid n
	shift 2
	clear_stale
	say "starting dockerd ($name), log in $log"
	echo "=== $(date -u '+%F %T') dockerd $name" >>"$log"
	# setsid: an interrupt at the terminal, or the end of a CI step's process group, must not take the daemon along.
	PATH=${dir:+$dir:}$PATH setsid nohup dockerd "$@" </dev/null >>"$log" 2>&1 9>&- &
	pid=$!
	# Cleaning up after containers of a dead daemon takes it a while.
	for n in $(seq 240); do
		answers && return 0
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.5
	done
	if kill -0 "$pid" 2>/dev/null; then
		kill "$pid" 2>/dev/null || true
		sleep 2
		kill -9 "$pid" 2>/dev/null || true
	fi
	say "dockerd ($name) did not come up:"
	tail -n 5 "$log" | cut -c1-300 >&2
	return 1
}

# Published ports are forwarded by the kernel, not by dockerd's proxy: the tests take a third less time.
direct=--userland-proxy=false
start default "" $direct && exit 0

# The kernel may lack what the default iptables needs (nf_tables), or the other way round.
for flavour in iptables-legacy iptables-nft; do
	if command -v "$flavour" >/dev/null; then
		bin=$state/$flavour
		mkdir -p "$bin"
		ln -sf "$(command -v "$flavour")" "$bin/iptables"
		ip6=$(command -v "ip6${flavour#ip}" || true)
		[ -z "$ip6" ] || ln -sf "$ip6" "$bin/ip6tables"
		start "$flavour" "$bin" $direct && exit 0
	fi
done

# A kernel without br_netfilter cannot publish ports without the proxy.
start "proxy" "" && exit 0

# Without any packet filter containers cannot reach the world, but ports published on loopback still work by dockerd's
# own proxy, and that is all the tests need.
start "no iptables" "" --iptables=false --ip6tables=false --ip-masq=false && exit 0
# A root file system that overlayfs refuses to stack on.
start "vfs" "" --iptables=false --ip-masq=false --storage-driver=vfs && exit 0

manual "dockerd does not start here; its log is $log"
