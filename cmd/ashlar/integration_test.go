//go:build integration

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/internal/testenv"
)

func TestMain(m *testing.M) {
	actAsCommand()
	testenv.Main(m)
}

func TestSessionOnPostgres(t *testing.T) {
	t.Parallel()
	session(t, func(t *testing.T) string { return testenv.Postgres(t).StoreURL(t) })
}

func TestSessionOnEtcd(t *testing.T) {
	t.Parallel()
	session(t, func(t *testing.T) string { return testenv.Etcd(t).StoreURL(t) })
}

func TestSessionOnDynamoDB(t *testing.T) {
	t.Parallel()
	session(t, func(t *testing.T) string { return testenv.DynamoDB(t).StoreURL(t) })
}

func TestSchema(t *testing.T) {
	t.Parallel()
	c := newCLI(t, testenv.Postgres(t).StoreURL(t))
	require.Regexp(t, `^schema \S+ has version 0; this program's is [1-9]\d*\n$`, c.ok("", "schema", "status"))
	require.Regexp(t, `^from version 0 to [1-9]\d*\n$`, c.ok("", "schema", "up"))
	require.Regexp(t, `^version [1-9]\d* already\n$`, c.ok("", "schema", "up"))
	require.Regexp(t, `^{"latest":[1-9]\d*,"schema":"[^"]+","version":[1-9]\d*}\n$`, c.ok("", "schema", "status", "-o", "json"))
	c.ok(configMap("a", ""), "apply", "-f", "-", "--store", c.env["ASHLAR_STORE"]+"&create=off")
	require.Equal(t, "core/ConfigMap/a\n", c.ok("", "list", "*", "-o", "name"))
}
