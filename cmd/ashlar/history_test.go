package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
)

// revisions returns the output of ashlar revisions.
func (c *runner) revisions() (oldest, newest int64) {
	c.t.Helper()
	text := c.ok("", "revisions", "-o", "name")
	_, err := fmt.Sscanf(text, "%d %d\n", &oldest, &newest)
	require.NoError(c.t, err, text)
	return oldest, newest
}

// newest returns the newest revision as an argument.
func (c *runner) newest() string {
	_, newest := c.revisions()
	return fmt.Sprint(newest)
}

func TestHistoryOnMemory(t *testing.T) {
	t.Parallel()
	historySession(t, newRunner(t, memoryURL()))
}

func TestHistoryOnSQLite(t *testing.T) {
	t.Parallel()
	historySession(t, newRunner(t, fileURL(t)))
}

// historySession runs an operator's commands for inspecting the history of a store.
func historySession(t *testing.T, c *runner) {
	oldest, empty := c.revisions()
	require.LessOrEqual(t, oldest, empty)
	require.Equal(t, fmt.Sprintf("{\"oldest\":%d,\"newest\":%d}\n", oldest, empty), c.ok("", "revisions", "-o", "json"))
	require.Regexp(t, `^OLDEST +NEWEST\n\d+ +\d+ *\n$`, c.ok("", "revisions"))

	c.ok(configMap("a", "1")+"---\n"+configMap("b", "1"), "apply", "-f", "-")
	first := c.newest()
	shown := c.ok("", "list", "*", "-A", "-o", "json")
	c.ok(configMap("a", "2"), "apply", "-f", "-")
	c.ok(configMap("c", "1"), "apply", "-f", "-", "-n", "shop")
	c.ok("", "delete", "core/ConfigMap", "b")
	second := c.newest()
	c.ok(configMap("b", "3"), "apply", "-f", "-")

	// The store at an old revision.
	require.Equal(t, shown, c.ok("", "list", "*", "-A", "-o", "json", "--at", first))
	require.Equal(t, []string{"core/ConfigMap/a", "core/ConfigMap/c"}, lines(c.ok("", "list", "core/ConfigMap", "-A", "-o", "name", "--at", second)))
	require.Equal(t, []string{"core/ConfigMap/c"}, lines(c.ok("", "list", "core/*", "-n", "shop", "-o", "name", "--at", second)))
	require.Equal(t, []string{"core/ConfigMap/b"}, lines(c.ok("", "list", "*", "-A", "--prefix", "b", "-o", "name", "--at", first)))
	require.Equal(t, []string{"core/ConfigMap/a"}, lines(c.ok("", "list", "*", "-A", "--limit", "1", "-o", "name", "--at", second)))
	require.Empty(t, c.ok("", "list", "*", "-A", "--at", fmt.Sprint(empty)))

	// The differences.
	require.Equal(t, []string{"changed core/ConfigMap/a", "deleted core/ConfigMap/b", "created core/ConfigMap/c"},
		lines(c.ok("", "diff", "-A", "--from", first, "--to", second, "*", "-o", "name")))
	text := c.ok("", "diff", "-A", "--from", first, "--to", second, "*")
	require.Regexp(t, `^changed  core/ConfigMap default/a \(revision \d+, was \d+\)\n`+
		`  ~ data.value.data.text: "1" -> "2"\n`+
		`deleted  core/ConfigMap default/b \(was revision \d+\)\n`+
		`created  core/ConfigMap shop/c \(revision \d+\)\n$`, text)
	require.Equal(t, []string{"replaced core/ConfigMap/b"}, lines(c.ok("", "diff", "-A", "--from", first, "core/ConfigMap", "--prefix", "b", "-o", "name")))
	require.Contains(t, c.ok("", "diff", "-A", "--from", first, "core/ConfigMap", "--prefix", "b"), "\n  ~ id.uid: ")
	require.Equal(t, []string{"created core/ConfigMap/c"}, lines(c.ok("", "diff", "--from", first, "*", "-n", "shop", "-o", "name")))
	require.Len(t, lines(c.ok("", "diff", "-A", "--from", first, "*", "--limit", "2", "-o", "name")), 2)
	require.Empty(t, c.ok("", "diff", "-A", "--from", second, "--to", second, "*"))
	var change struct {
		Change      string
		Before, Now *struct {
			Revision, Created, Writes int64
			Resource                  json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(lines(c.ok("", "diff", "-A", "--from", first, "--to", second, "*", "-o", "json"))[0]), &change))
	require.Equal(t, "changed", change.Change)
	require.Equal(t, change.Before.Revision, change.Now.Created)
	require.Equal(t, int64(2), change.Now.Writes)
	_, err := jsonpb.Unmarshal(change.Now.Resource)
	require.NoError(t, err)

	// The versions of one resource, in all of its lives.
	require.Regexp(t, `^ +\d+  created  20\d\d-\S+Z\n`+
		` +\d+  deleted\n`+
		` +\d+  created  20\d\d-\S+Z\n$`, c.ok("", "history", "core/ConfigMap", "b"))
	require.Regexp(t, `^ +\d+  created  \S+\n`+
		` +\d+  changed  \S+\n`+
		`  ~ data.value.data.text: "1" -> "2"\n$`, c.ok("", "history", "core/ConfigMap", "a"))
	require.Len(t, lines(c.ok("", "history", "core/ConfigMap", "a", "-o", "json")), 2)
	require.Contains(t, c.ok("", "history", "core/ConfigMap", "a", "-o", "yaml"), "---\nchange: changed\n")
	r := c.run("", "history", "core/ConfigMap", "nobody")
	require.Equal(t, cli.ExitNotFound, r.code)
	require.Contains(t, r.err, "the store has kept no version of it")

	checkCompacted(t, c, first, second)
}

// checkCompacted checks the output after a part of the history is compacted.
func checkCompacted(t *testing.T, c *runner, first, second string) {
	oldest, _ := c.revisions()
	require.Equal(t, fmt.Sprintf("compacted: the oldest revision is %s, was %d; the newest is %s\n", second, oldest, c.newest()),
		c.ok("", "compact", second))
	require.Equal(t, fmt.Sprintf("nothing to delete: the oldest revision is %s, the newest %s\n", second, c.newest()), c.ok("", "compact", first))
	for _, args := range [][]string{{"list", "*", "-A", "--at", first}, {"diff", "-A", "--from", first, "*"}} {
		r := c.run("", args...)
		require.Equal(t, cli.ExitFailed, r.code, "%v", args)
		require.Contains(t, r.err, fmt.Sprintf("(the store has the revisions %s to %s)", second, c.newest()), "%v", args)
	}
	r := c.run("", "list", "*", "-A", "--at", "999999999999")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "the store has the revisions")
	require.Equal(t, []string{"core/ConfigMap/a", "core/ConfigMap/c"}, lines(c.ok("", "list", "*", "-A", "-o", "name", "--at", second)))
	require.Regexp(t, `^ +\d+  kept  \S+  \(write 2 since it was created at revision \d+\)\n$`, c.ok("", "history", "core/ConfigMap", "a"))
	require.Regexp(t, `^ +\d+  created  \S+\n$`, c.ok("", "history", "core/ConfigMap", "b"), "its first life is forgotten")
	c.ok("", "compact", "--keep", "0")
	oldest, newest := c.revisions()
	require.Equal(t, newest, oldest)
	require.Len(t, lines(c.ok("", "list", "*", "-A", "-o", "name")), 3, "what is stored stays")
}

// noHistory checks that the commands report a store without history.
func noHistory(t *testing.T, c *runner) {
	for _, args := range [][]string{
		{"revisions"}, {"list", "*", "-A", "--at", "1"}, {"diff", "-A", "--from", "1", "*"}, {"history", "core/ConfigMap", "a"}, {"compact", "1"},
	} {
		r := c.run("", args...)
		require.Equal(t, cli.ExitUsage, r.code, "%v", args)
		require.Contains(t, r.err, "this store does not number its changes", "%v", args)
	}
}

// The commands print the history as shown in the document, except for the times.
func TestHistoryAsDocumented(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(document), "\n## The past\n")
	_, shown, _ := strings.Cut(section, "\n```\n")
	shown, _, _ = strings.Cut(shown, "```\n")

	dir := t.TempDir()
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop}\ndata: {log-level: %s}\n"
	files := map[string]string{
		"before.yaml": write(t, dir, "before.yaml", fmt.Sprintf(settings, "info")),
		"after.yaml":  write(t, dir, "after.yaml", fmt.Sprintf(settings, `debug, sampling: "0.1"`)),
	}
	c := newRunner(t, memoryURL())
	var said strings.Builder
	commands := 0
	for _, line := range lines(shown) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		commands++
		args := invocations(command)[0]
		for i, arg := range args {
			if file := files[arg]; file != "" {
				args[i] = file
			}
		}
		fmt.Fprintln(&said, line)
		for _, line := range lines(c.ok("", args...)) {
			fmt.Fprintln(&said, strings.TrimRight(line, " "))
		}
	}
	require.Greater(t, commands, 8)
	times := regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	require.Equal(t, times.ReplaceAllString(shown, "TIME"), times.ReplaceAllString(said.String(), "TIME"))
}

// A time is shown only beside the version that brought it.
func TestVersionTimes(t *testing.T) {
	t.Parallel()
	const early, late = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ"
	record := func(generation string) *history.Record {
		return &history.Record{Resource: &resourcepb.Resource{Generation: generation}}
	}
	for _, c := range []struct {
		before, now *history.Record
		want        string
	}{
		{nil, record(early), "2016-07-30T23:54:10Z"},
		{record(early), record(late), "2017-10-24T01:29:36Z"},
		{record(early), record(early), ""},
		{record(early), record("7"), ""},
		{record("7"), record(""), ""},
		{record(early), nil, ""},
	} {
		require.Equal(t, c.want, (&version{before: c.before, now: c.now}).time())
	}
}
