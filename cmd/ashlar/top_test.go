package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

func TestTopWithoutATerminal(t *testing.T) {
	t.Parallel()
	c := newRunner(t, memoryURL())
	dir := t.TempDir()
	c.ok("", "apply", "-f", write(t, dir, "a.yaml", configMap("a", "1")))
	out := c.ok("", "top", "--interval", "100ms", "--limit", "2")
	lines := strings.Split(out, "\n")
	require.Regexp(t, `^\S+  1 type, 1 resource, \d+ B, 0\.0 writes/s, 0\.0 deletes/s`, lines[0])
	require.Equal(t, []string{"TYPE", "RESOURCES", "SIZE", "WRITES/S", "DELETES/S"}, strings.Fields(lines[1]))
	require.Regexp(t, `^  core/ConfigMap +1 `, lines[2])
	require.Equal(t, 2, strings.Count(out, "TYPE"))
	require.NotContains(t, c.ok("", "top", "apps/*", "--interval", "100ms", "--limit", "1"), "ConfigMap")
	require.Empty(t, c.ok("", "top", "--timeout", "100ms", "--interval", "1h"))
	for _, wrong := range [][]string{{"a", "b"}, {"nonsense"}, {"--interval", "1ms"}, {"--limit", "-1"}} {
		require.Equal(t, cli.ExitUsage, c.run("", append([]string{"top"}, wrong...)...).code, "%v", wrong)
	}
	require.Equal(t, cli.ExitUsage, newRunner(t, "nonsense://").run("", "top").code)
}

func TestListAndWatch(t *testing.T) {
	t.Parallel()
	c := newRunner(t, fileURL(t))
	dir := t.TempDir()
	c.ok("", "apply", "-f", write(t, dir, "a.yaml", configMap("a", "1")), "-f", write(t, dir, "long.yaml", configMap("a-long-name", "1")))
	listed := strings.Split(strings.TrimSuffix(c.ok("", "list", "*", "-A"), "\n"), "\n")
	p := start(t, []string{"ASHLAR_STORE=" + c.env["ASHLAR_STORE"]}, "list", "*", "-A", "--watch", "--limit", "4")
	for _, line := range listed {
		require.Equal(t, line, p.next(), "the table is that of list")
	}
	c.ok("", "apply", "-f", write(t, dir, "b.yaml", configMap("b", "1")))
	require.Regexp(t, `^upsert core/ConfigMap +.* b$`, p.next())
	c.ok("", "delete", "core/ConfigMap", "a")
	require.Regexp(t, `^delete core/ConfigMap +.* a$`, p.next())
	require.Equal(t, cli.ExitOK, p.end(), p.err.String())

	require.Equal(t, c.ok("", "list", "*", "-A", "--limit", "1"), c.ok("", "list", "*", "-A", "-w", "--limit", "1"))
	require.Equal(t, c.ok("", "watch", "*", "-A", "-o", "json", "--limit", "2"), c.ok("", "list", "*", "-A", "-o", "json", "-w", "--limit", "2"))
	require.Equal(t, cli.ExitUsage, c.run("", "list", "*", "--watch", "--at", "1").code)
}
