#!/usr/bin/env bash
# Runs a command beside busy processes (BUSY, 8), so that every deadline in a test that is too short for a loaded machine is missed here.
# The busy processes end with the script: when the command ends, when it fails, and on Ctrl-C, SIGTERM and SIGHUP.
#
#   tools/stress.sh go test -race -count=3 -run TestLock ./cmd/ashlar
set -uo pipefail
busy=${BUSY:-8}
[[ $busy =~ ^[0-9]+$ ]] || { echo "stress: BUSY=$busy is not a number of processes" >&2; exit 2; }
[ $# -gt 0 ] || { echo "stress: no command given" >&2; exit 2; }

pids=()
command=
# end ends the processes that this script started, each by its id.
end() {
	trap - EXIT
	[ -z "$command" ] || kill -- "-$command" 2>/dev/null
	for pid in ${pids[@]+"${pids[@]}"}; do
		kill "$pid" 2>/dev/null
	done
	wait 2>/dev/null
}
trap end EXIT
trap 'end; exit 130' INT
trap 'end; exit 143' TERM
trap 'end; exit 129' HUP

# A busy process also ends when this script was killed and could not end it.
owner=$$
for ((n = 0; n < busy; n++)); do
	(
		trap - EXIT INT TERM HUP
		while kill -0 "$owner" 2>/dev/null; do
			for ((i = 0; i < 200000; i++)); do :; done
		done
	) &
	pids+=($!)
done
echo "stress: $busy busy processes (pids ${pids[*]-}) beside: $*" >&2

# In the background, so that a signal interrupts the wait; in a process group of its own, so that the signal reaches the test binaries too.
set -m
"$@" </dev/null &
command=$!
set +m
wait "$command"
code=$?
command=
exit $code
