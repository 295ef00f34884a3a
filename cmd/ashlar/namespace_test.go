package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// Without -n and -p, every command for the resources of a type uses the namespace and the partition "default".
func TestDefaultNamespace(t *testing.T) {
	t.Parallel()
	c := newRunner(t, memoryURL())
	for _, flags := range [][]string{{}, {"-n", "shop"}, {"-p", "other"}} {
		c.ok(configMap("a", ""), append([]string{"apply", "-f", "-"}, flags...)...)
	}
	here, shop, other := "core/ConfigMap +default +default +a *\n", "core/ConfigMap +default +shop +a *\n", "core/ConfigMap +other +default +a *\n"
	head := "^TYPE .*\n"
	require.Regexp(t, head+here+"$", c.ok("", "get", "core/ConfigMap", "a"))
	for _, command := range [][]string{{"list", "core/ConfigMap"}, {"list", "*"}, {"list", "*", "--at", c.newest()}, {"list", "*", "--watch", "--limit", "1"}} {
		require.Regexp(t, head+here+"$", c.ok("", command...), command)
	}
	for _, all := range []string{"-A", "--all-namespaces"} {
		require.Regexp(t, head+here+shop+"$", c.ok("", "list", "*", all))
		require.Regexp(t, head+here+shop+other+"$", c.ok("", "list", "*", all, "-p", "*"))
	}
	require.Regexp(t, head+here+other+"$", c.ok("", "list", "*", "-p", "*"))

	w := c.watch("core/ConfigMap")
	require.Regexp(t, `^upsert core/ConfigMap +default/default +a$`, w.next())
	require.Equal(t, "synced", w.next())
	w.stop()
	require.Equal(t, cli.ExitOK, w.end())
	w = c.watch("core/ConfigMap", "-A", "--limit", "2")
	require.Regexp(t, `/default +a$`, w.next())
	require.Regexp(t, `/shop +a$`, w.next())
	require.Equal(t, cli.ExitOK, w.end())

	before := c.newest()
	c.ok(configMap("a", "new"), "apply", "-f", "-", "-n", "shop")
	require.Empty(t, c.ok("", "diff", "--from", before, "*"))
	require.Equal(t, []string{"changed core/ConfigMap/a"}, lines(c.ok("", "diff", "--from", before, "*", "-A", "-o", "name")))
	require.Equal(t, "core/ConfigMap default/a deleted\n", c.ok("", "delete", "core/ConfigMap", "a"))

	// The commands that describe a store cover all of it.
	require.Regexp(t, `^core/ConfigMap +2$`, lines(c.ok("", "types"))[1])
}
