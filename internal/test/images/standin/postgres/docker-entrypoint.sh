#!/bin/bash
# What users of the official image rely on: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB, POSTGRES_INITDB_ARGS,
# POSTGRES_HOST_AUTH_METHOD, PGDATA, /docker-entrypoint-initdb.d, `postgres -c …` and `-c …` as arguments; and that the
# server listens on TCP only once all of that is done.
set -Eeuo pipefail

[ "${1:0:1}" != - ] || set -- postgres "$@"
if [ "${1:-}" != postgres ]; then
	exec "$@"
fi

if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA" /var/run/postgresql
	chown -R postgres:postgres "$PGDATA" /var/run/postgresql
	chmod 700 "$PGDATA"
	chmod 3777 /var/run/postgresql
	export HOME=/var/lib/postgresql
	exec setpriv --reuid=postgres --regid=postgres --init-groups "$BASH" "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	user=${POSTGRES_USER:-postgres}
	db=${POSTGRES_DB:-$user}
	method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
	if [ -z "${POSTGRES_PASSWORD:-}" ] && [ "$method" != trust ]; then
		echo "Error: Database is uninitialized and superuser password is not specified (set POSTGRES_PASSWORD)" >&2
		exit 1
	fi
	eval "args=(${POSTGRES_INITDB_ARGS:-})"
	pwfile=$(mktemp)
	printf '%s\n' "${POSTGRES_PASSWORD:-}" >"$pwfile"
	initdb --username="$user" ${POSTGRES_PASSWORD:+--pwfile="$pwfile"} --encoding=UTF8 --locale=en_US.utf8 \
		--auth-local=trust --auth-host="$method" "${args[@]}" -D "$PGDATA" >/dev/null
	rm -f "$pwfile"
	printf '\nhost all all all %s\n' "$method" >>"$PGDATA/pg_hba.conf"

	# The server of the set-up is reachable by its socket only, so that nobody outside takes it for the real one.
	pg_ctl -D "$PGDATA" -w -s -t 120 -o "-c listen_addresses='' -c unix_socket_directories=/var/run/postgresql -p 5432" start
	sql=(psql -v ON_ERROR_STOP=1 --no-psqlrc -q -h /var/run/postgresql -p 5432 -U "$user")
	if [ "$db" != postgres ]; then
		"${sql[@]}" -d postgres -v db="$db" <<<'CREATE DATABASE :"db";'
	fi
	for f in /docker-entrypoint-initdb.d/*; do
		case $f in
		*.sh) bash "$f" ;;
		*.sql) "${sql[@]}" -d "$db" -f "$f" ;;
		esac
	done
	pg_ctl -D "$PGDATA" -w -s -t 120 -m fast stop
	echo "PostgreSQL init process complete; ready for start up."
fi

# The official image is built to listen everywhere and to keep its socket here.
exec "$1" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql "${@:2}"
