package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// A mistyped URL must not become an empty store: commands that need existing data fail and create nothing.
func TestMissingStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, target := filepath.Join(dir, "stroe.db"), "sqlite://"+filepath.Join(dir, "target.db")
	c := &runner{t: t, env: map[string]string{"ASHLAR_STORE": "sqlite://" + file}}
	for _, args := range [][]string{
		{"list", "*"},
		{"list", "*", "--watch", "--limit", "1"},
		{"get", "core/Pod", "a"},
		{"delete", "core/Pod", "a"},
		{"owned", "core/Pod", "a"},
		{"types"},
		{"watch", "*", "--limit", "1"},
		{"revisions"},
		{"history", "core/Pod", "a"},
		{"compact", "--keep", "10"},
		{"export", filepath.Join(dir, "x")},
		{"migrate", "--from", "sqlite://" + file, "--to", target},
		{"migrate", "verify", "--from", target, "--to", "sqlite://" + file},
		{"migrate", "status"},
		{"migrate", "unfence"},
		{"import", filepath.Join(dir, "missing")},
	} {
		r := c.run("", args...)
		require.Equal(t, cli.ExitFailed, r.code, "%s: %s", args, r.err)
		if args[0] != "import" {
			require.Contains(t, r.err, "the store does not exist", args)
		}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, args)
	}

	r := c.run(configMap("a", ""), "apply", "-f", "-")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, "created the store sqlite://"+file+"\n", r.err)
	r = c.run(configMap("b", ""), "apply", "-f", "-")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Empty(t, r.err)
}

// A malformed parameter of an existing store is an error, and is not ignored.
func TestMalformedParameterOfStore(t *testing.T) {
	t.Parallel()
	c := newRunner(t, fileURL(t))
	c.ok(configMap("a", ""), "apply", "-f", "-")
	c.env["ASHLAR_STORE"] += "?retention=720h;max-size=1000"
	for _, args := range [][]string{{"list", "*"}, {"apply", "-f", "-"}} {
		r := c.run(configMap("a", ""), args...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", args, r.out)
		require.Contains(t, r.err, "malformed URL parameters", args)
	}
}

// A damaged export creates no store.
func TestImportOfADamagedFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "store.db")
	c := &runner{t: t, env: map[string]string{"ASHLAR_STORE": "sqlite://" + file}}
	r := c.run("not an export", "import", "-")
	require.NotEqual(t, cli.ExitOK, r.code)
	require.Contains(t, r.err, "import: ")
	require.NoFileExists(t, file)
}

func TestEmptySource(t *testing.T) {
	t.Parallel()
	c := newRunner(t, fileURL(t))
	c.ok(configMap("a", ""), "apply", "-f", "-")
	c.ok("", "delete", "core/ConfigMap", "a")
	file := filepath.Join(t.TempDir(), "export")
	migration := []string{"migrate", "--from", c.env["ASHLAR_STORE"], "--to", fileURL(t)}
	for _, args := range [][]string{{"export", file}, {"export", "-"}, migration} {
		r := c.run("", args...)
		require.Equal(t, cli.ExitFailed, r.code, args)
		require.Contains(t, r.err, "the store has no resources", args)
		require.NoFileExists(t, file)
	}
	require.Contains(t, c.ok("", "export", file, "--allow-empty"), "0 resources")
	require.Contains(t, c.ok("", append(migration, "--allow-empty")...), "verified: equal")
}

// The target of a complete migration is a store like others: a later migration from an empty store does not delete its contents.
func TestEmptySourceAfterAMigration(t *testing.T) {
	t.Parallel()
	c := newRunner(t, fileURL(t))
	c.ok(configMap("a", ""), "apply", "-f", "-")
	target, empty := fileURL(t), newRunner(t, fileURL(t))
	c.ok("", "migrate", "--from", c.env["ASHLAR_STORE"], "--to", target, "--live", "--cutover-when-lag-below", "1h")
	empty.ok(configMap("b", ""), "apply", "-f", "-")
	empty.ok("", "delete", "core/ConfigMap", "b")
	r := c.run("", "migrate", "--mirror", "--from", empty.env["ASHLAR_STORE"], "--to", target)
	require.Equal(t, cli.ExitFailed, r.code, r.out)
	require.Contains(t, r.err, "the store has no resources")
}

// An empty table says so, and names resources outside the filter.
func TestEmptyList(t *testing.T) {
	t.Parallel()
	c := newRunner(t, fileURL(t))
	c.ok(configMap("a", ""), "apply", "-f", "-")
	for want, args := range map[string]string{
		"no resources found":                      "list core/Pod -A -p *",
		"no resources found in namespace default": "list core/Pod",
		"no resources found in namespace shop; there are 1 elsewhere (see -A and -p)":              "list core/ConfigMap -n shop",
		"no resources found in partition p, namespace shop; there are 1 elsewhere (see -A and -p)": "list core/ConfigMap -p p -n shop",
		"no resources found in partition p; there are 1 elsewhere (see -A and -p)":                 "list core/ConfigMap -p p -A",
		`no resources found with the prefix "b"; there are 1 elsewhere (see -A and -p)`:            "list core/ConfigMap --prefix b -A",
		`no resources found in namespace shop with the prefix "b"`:                                 "list core/Pod --prefix b -n shop",
	} {
		r := c.run("", strings.Fields(args)...)
		require.Equal(t, cli.ExitOK, r.code, r.err)
		require.Empty(t, r.out)
		require.Equal(t, want+"\n", r.err, args)
	}
	r := c.run("", "list", "core/Pod", "-o", "json")
	require.Empty(t, r.err)
}

// A command that needs an existing store does not create the folder of the default store either.
func TestMissingDefaultStore(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	c := &runner{t: t, env: map[string]string{"HOME": home}}
	r := c.run("", "list", "*")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "the store does not exist")
	entries, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Empty(t, entries)
	r = c.run(configMap("a", ""), "apply", "-f", "-")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, "core/ConfigMap/a\n", c.ok("", "list", "*", "-o", "name"))
}
