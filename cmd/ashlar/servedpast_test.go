package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

func TestHistoryThroughServer(t *testing.T) {
	t.Parallel()
	historyThroughServer(t, fileURL(t), true)
}

// historyThroughServer compares the output of the history commands through a server with their output on its store. Every command is compared
// as JSON, which contains everything that the other formats show. They are compared for every command if all is set, otherwise for the first
// of each name, because they do not depend on the store.
func historyThroughServer(t *testing.T, store string, all bool) {
	s := serveStore(t, store)
	c, direct := s.cli(t), newRunner(t, store)
	c.ok(configMap("a", "1")+"---\n"+configMap("ab", "1")+"---\n"+configMap("b", "1"), "apply", "-f", "-")
	first := c.newest()
	c.ok(configMap("a", "2"), "apply", "-f", "-")
	c.ok(configMap("c", "1"), "apply", "-f", "-", "-n", "shop")
	second := c.newest()
	direct.ok("", "delete", "core/ConfigMap", "b") // it leaves no tombstone that is deleted later
	c.ok(configMap("b", "3"), "apply", "-f", "-")
	direct.ok("", "delete", "core/ConfigMap", "a")

	commands := [][]string{
		{"revisions"}, {"revisions", "core/ConfigMap", "-n", "shop"},
		{"list", "core/*", "-A", "--at", first}, {"list", "core/*", "--at", second, "-n", "shop"},
		{"list", "core/ConfigMap", "-A", "--at", second, "--prefix", "a"},
		{"list", "core/ConfigMap", "-A", "--at", second, "--limit", "1"}, {"list", "*", "-A", "--at", first},
		{"diff", "-A", "--from", first, "core/*"}, {"diff", "-A", "--from", first, "--to", second, "*"},
		{"diff", "--from", first, "core/ConfigMap", "-n", "shop"},
		{"diff", "-A", "--from", first, "core/ConfigMap", "--limit", "1"}, {"diff", "-A", "--from", second, "--to", second, "*"},
		{"history", "core/ConfigMap", "a"}, {"history", "core/ConfigMap", "b"}, {"history", "core/ConfigMap", "c", "-n", "shop"},
	}
	same := func() {
		t.Helper()
		seen := map[string]bool{}
		for _, args := range commands {
			formats := []string{"json", "table", "yaml", "name"}
			if !all && seen[args[0]] {
				formats = formats[:1]
			}
			seen[args[0]] = true
			for _, format := range formats {
				args := append(args, "-o", format)
				require.Equal(t, direct.run("", args...), c.run("", args...), "%v", args)
			}
		}
	}
	same()
	require.Len(t, lines(c.ok("", "history", "core/ConfigMap", "b", "-o", "name")), 3)
	require.Len(t, lines(c.ok("", "diff", "-A", "--from", first, "core/*", "-o", "name")), 3)

	// Revisions that do not exist, or no longer exist.
	direct.ok("", "compact", second)
	for _, args := range [][]string{
		{"list", "*", "-A", "--at", first}, {"diff", "-A", "--from", first, "core/*"}, {"list", "*", "-A", "--at", "999999999999"},
	} {
		r := c.run("", args...)
		require.Equal(t, cli.ExitFailed, r.code, "%v", args)
		require.Contains(t, r.err, fmt.Sprintf(" (the store has the revisions %s to %s)\n", second, c.newest()), "%v", args)
	}
	commands = [][]string{
		{"revisions"}, {"list", "core/*", "-A", "--at", second}, {"history", "core/ConfigMap", "a"}, {"history", "core/ConfigMap", "ab"},
	}
	same()
	require.Contains(t, c.ok("", "history", "core/ConfigMap", "ab"), "  kept  ")
	r := c.run("", "history", "core/ConfigMap", "nobody")
	require.Equal(t, cli.ExitNotFound, r.code)
	require.Contains(t, r.err, "the store has kept no version of it")
	direct.ok("", "compact", "--keep", "0")
	for _, c := range []*runner{c, direct} {
		r := c.run("", "history", "core/ConfigMap", "a")
		require.Equal(t, cli.ExitNotFound, r.code, "another name with the same beginning exists: %s", r.out)
	}

	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
}

// A history of several pages is read to its end, each resource once.
func TestHistoryThroughServerPages(t *testing.T) {
	t.Parallel()
	s := serveStore(t, memoryURL())
	c := s.cli(t)
	const many = 2*scanLimit + 1
	var docs strings.Builder
	for i := range many {
		docs.WriteString("---\n" + configMap(fmt.Sprintf("c%04d", i), "1"))
	}
	c.ok(docs.String(), "apply", "-f", "-")
	then, listed := c.newest(), c.ok("", "list", "*", "-A")
	require.Len(t, lines(listed), many+1)
	c.ok("", "delete", "core/ConfigMap", "c0000")
	require.Equal(t, listed, c.ok("", "list", "*", "-A", "--at", then))
	require.Equal(t, []string{"deleted core/ConfigMap/c0000"}, lines(c.ok("", "diff", "-A", "--from", then, "core/*", "-o", "name")))
}

// noHistoryThroughServer checks that a server reports that its store has no history.
func noHistoryThroughServer(t *testing.T, store string) {
	s := serveStore(t, store)
	for _, args := range [][]string{
		{"revisions"}, {"list", "*", "-A", "--at", "1"}, {"diff", "-A", "--from", "1", "*"}, {"history", "core/ConfigMap", "a"},
	} {
		r := s.cli(t).run("", args...)
		require.Equal(t, cli.ExitUsage, r.code, "%v", args)
		require.Contains(t, r.err, "the store does not number its changes", "%v", args)
	}
}

// A token permits the same resources in the history as in the present.
func TestHistoryByToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shop, shopHash := token()
	reader, readerHash := token()
	file := write(t, dir, "tokens.yaml", fmt.Sprintf(`
tokens:
  - {name: shop, sha256: %s, rules: [{types: [core/*], namespace: shop, may: [read, list]}]}
  - {name: reader, sha256: %s, rules: [{types: ["*"], may: [read]}]}
`, shopHash, readerHash))
	store := fileURL(t)
	direct := newRunner(t, store)
	before := direct.newest()
	direct.ok(configMap("mine", "1"), "apply", "-f", "-", "-n", "shop")
	direct.ok(configMap("theirs", "1"), "apply", "-f", "-", "-n", "bank")
	direct.ok(configMap("mine", "2"), "apply", "-f", "-", "-n", "shop")
	s := serveStore(t, store, "--tokens", file)
	c := s.cli(t).with("--token", shop)

	for _, args := range [][]string{
		{"list", "core/*", "--at", direct.newest(), "-n", "shop", "-o", "name"}, {"diff", "--from", before, "core/*", "-n", "shop"},
		{"history", "core/ConfigMap", "mine", "-n", "shop"}, {"revisions", "core/*", "-n", "shop"},
	} {
		require.Equal(t, direct.ok("", args...), c.ok("", args...), "%v", args)
	}
	// The error about a missing revision names the available revisions only if the caller may list the type.
	r := c.run("", "list", "core/*", "--at", "999999999999", "-n", "shop")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "(the store has the revisions 1 to "+direct.newest()+")")
	for _, args := range [][]string{
		{"list", "core/*", "-A", "--at", before}, {"list", "*", "--at", before, "-n", "bank"}, {"diff", "-A", "--from", before, "core/*"}, {"revisions"},
		{"history", "core/ConfigMap", "theirs", "-n", "bank"},
	} {
		r := c.run("", args...)
		require.Equal(t, cli.ExitFailed, r.code, "%v", args)
		require.Contains(t, r.err, `"shop" may not list`, "%v", args)
		require.NotContains(t, r.err, "the store has", "%v", args)
		require.Equal(t, cli.ExitFailed, s.cli(t).with("--token", reader).run("", args...).code, "read permission does not allow history lists: %v", args)
		require.Contains(t, s.cli(t).run("", args...).err, "a token is required", "%v", args)
	}
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
}

// The document explains for each command without --server why it needs the store, and for no other.
func TestUnsupportedCommandsDocumented(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/service.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(document), "\n### Commands that need the store\n")
	section, _, _ = strings.Cut(section, "\n### ")
	root := newRoot(newRunner(t, "").app(nil, nil, nil))
	root.InitDefaultCompletionCmd()
	refused := 0
	for _, cmd := range root.Commands() {
		documented := false
		for _, line := range lines(section) {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			documented = documented || strings.HasPrefix(line, "|") && strings.Contains(first, "`"+cmd.Name()+"`")
		}
		through := cmd.Annotations[serverAnnotation] != ""
		require.Equal(t, !through, documented, "docs/service.md lists %s as a command that needs the store", cmd.Name())
		if !through {
			refused++
		}
	}
	require.Greater(t, refused, 5)
}
