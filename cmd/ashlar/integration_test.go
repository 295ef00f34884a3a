//go:build integration

package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) {
	actAsCommand()
	env.Main(m)
}

func TestSessionOnPostgres(t *testing.T) {
	t.Parallel()
	session(t, func(t *testing.T) string { return env.Postgres(t).StoreURL(t) })
}

func TestSessionOnEtcd(t *testing.T) {
	t.Parallel()
	session(t, func(t *testing.T) string { return env.Etcd(t).StoreURL(t) })
}

func TestSessionOnDynamoDB(t *testing.T) {
	t.Parallel()
	session(t, func(t *testing.T) string { return env.DynamoDB(t).StoreURL(t) })
}

func TestServeEtcdCrashesOnPostgres(t *testing.T) {
	t.Parallel()
	etcdCrashes(t, env.Postgres(t).StoreURL(t))
}

func TestServeEtcdFrozenOnPostgres(t *testing.T) {
	t.Parallel()
	etcdFrozen(t, env.Postgres(t).StoreURL(t))
}

func TestHistoryOnPostgres(t *testing.T) {
	t.Parallel()
	historySession(t, newRunner(t, env.Postgres(t).StoreURL(t)))
	historyThroughServer(t, env.Postgres(t).StoreURL(t), false)
}

// The test has its own server, because a compaction affects all stores in it.
func TestHistoryOnEtcd(t *testing.T) {
	t.Parallel()
	historySession(t, newRunner(t, env.StartEtcd(t).StoreURL(t)))
}

func TestNoHistoryOnDynamoDB(t *testing.T) {
	t.Parallel()
	noHistory(t, newRunner(t, env.DynamoDB(t).StoreURL(t, "timeout=2m")))
	noHistoryThroughServer(t, env.DynamoDB(t).StoreURL(t, "timeout=2m"))
}

func TestSchema(t *testing.T) {
	t.Parallel()
	c := &runner{t: t, env: map[string]string{"ASHLAR_STORE": env.Postgres(t).StoreURL(t)}} // does not exist yet
	require.Regexp(t, `^schema \S+ has version 0; this program's is [1-9]\d*\n$`, c.ok("", "schema", "status"))
	require.Regexp(t, `(?s)^-- schema .*\n-- to version 9 by 001_store.sql\n-- locks: none .*\n-- programs of version 9 and later .*create table .*resources`,
		c.ok("", "schema", "plan"))
	require.Regexp(t, `^from version 0 to [1-9]\d*\n$`, c.ok("", "schema", "upgrade"))
	require.Regexp(t, `^version [1-9]\d* already\n$`, c.ok("", "schema", "upgrade"))
	require.Regexp(t, `^-- schema \S+ has version (\d+); this program's is \d+\n$`, c.ok("", "schema", "plan"))
	require.Regexp(t, `^{"latest":[1-9]\d*,"oldest":[1-9]\d*,"schema":"[^"]+","version":[1-9]\d*}\n$`, c.ok("", "schema", "status", "-o", "json"))
	c.ok(configMap("a", ""), "apply", "-f", "-", "--store", c.env["ASHLAR_STORE"]+"&create=off")
	require.Equal(t, "core/ConfigMap/a\n", c.ok("", "list", "*", "-o", "name"))
}

// TestMigrateForbidden checks the error for a target that the user may read but not write.
func TestMigrateForbidden(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	from, to := fileURL(t), server.StoreURLIn(t, schema)
	c := newRunner(t, from)
	c.ok("", "apply", "-f", boutique)
	c.ok("", "schema", "upgrade", "--store", to)
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	conn := server.Connect(t)
	role, password := "reader_"+strings.ToLower(rand.Text()), rand.Text()
	forbidding := []string{
		"create role " + role + " login password '" + password + "'",
		"grant usage on schema " + schema + " to " + role,
		"grant all on all tables in schema " + schema + " to " + role,
		"grant all on all sequences in schema " + schema + " to " + role,
	}
	t.Cleanup(func() {
		_, err := server.Connect(t).Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
		require.NoError(t, err)
	})
	for _, sql := range forbidding {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	u, err := url.Parse(to)
	require.NoError(t, err)
	u.User = url.UserPassword(role, password)
	command := []string{"migrate", "--from", from, "--to", u.String()}
	r := c.run("", command...)
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "permission denied for schema "+schema)
	require.Contains(t, r.err, "the same command continues from here")
	require.NotContains(t, r.err+r.out, password)
	// The tool closes the target for other writers by a trigger, which only the owner of the table may create.
	_, err = conn.Exec(ctx, "grant create on schema "+schema+" to "+role+"; alter table "+schema+".resources owner to "+role)
	require.NoError(t, err)
	require.Contains(t, c.ok("", command...), "verified: equal")
}

func TestSessionThroughServerOnPostgres(t *testing.T) {
	t.Parallel()
	sessionThroughServer(t, func(t *testing.T) string { return env.Postgres(t).StoreURL(t) })
}

func TestServeOnPostgresKilledUnderWatches(t *testing.T) {
	t.Parallel()
	killedUnderWatches(t, env.Postgres(t).StoreURL(t), 24, 3)
}

func TestTwoServersOnOnePostgres(t *testing.T) {
	t.Parallel()
	twoServers(t, env.Postgres(t).StoreURL(t))
}

// A probe is answered while the database is frozen, and reports it. The server recovers together with the database.
func TestReadinessOnAFrozenPostgres(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	s := serveStore(t, server.StoreURL(t), "--ready-timeout", "500ms")
	s.waitForAnswer(s.http, http.StatusOK, "ready\n")
	server.Pause(t)
	frozen := true
	defer func() {
		if frozen {
			server.Unpause(t)
		}
	}()
	for range 3 { // an earlier probe does not block a later one
		code, text := s.get("/readyz")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, "not ready: the store does not answer\n", text)
	}
	code, _ := s.get("/healthz")
	require.Equal(t, http.StatusOK, code, "the process itself is well")
	s.waitForLog(`"msg":"not ready"`)
	frozen = false
	server.Unpause(t)
	s.waitForAnswer(s.http, http.StatusOK, "ready\n")
}
