package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/internal/check"
)

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"unknown command":    {"aply"},
		"unknown flag":       {"list", "*", "--colour"},
		"missing value":      {"list", "*", "--limit"},
		"malformed value":    {"list", "*", "--limit", "many"},
		"negative limit":     {"list", "*", "--limit", "-1"},
		"negative timeout":   {"list", "*", "--timeout", "-1s"},
		"no type":            {"list"},
		"too many arguments": {"get", "core/Pod", "a", "b"},
		"no name":            {"get", "core/Pod"},
		"no group":           {"get", "Pod", "a"},
		"no kind":            {"list", "core/"},
		"wildcard":           {"get", "*", "a"},
		"wildcard kind":      {"delete", "core/*", "a"},
		"wildcard group":     {"list", "*/Pod"},
		"output":             {"list", "*", "-o", "xml"},
		"no file":            {"apply"},
		"file as argument":   {"apply", "x.yaml"},
		"garbage cursor":     {"watch", "*", "--cursor", "garbage"},
		"empty cursor":       {"watch", "*", "--cursor", ""},
		"long namespace":     {"list", "*", "-n", strings.Repeat("n", check.MaxPart+1)},
		"not UTF-8":          {"get", "core/Pod", "\xff"},
		"unknown scheme":     {"list", "*", "--store", "oracle://x"},
		"no scheme":          {"list", "*", "--store", "store.db"},
		"unknown parameter":  {"list", "*", "--store", "mem://?colour=red"},
		"bad parameter":      {"list", "*", "--store", "mem://?max-size=much"},
		"no Postgres":        {"schema", "status"},
		"what about it":      {"schema", "down"},
		"fragment":           {"list", "*", "--store", "mem://#x"},
		"-n and -A":          {"list", "*", "-n", "shop", "-A"},
		"no revision":        {"list", "*", "--at", "0"},
		"no --from":          {"diff", "*"},
		"--from nothing":     {"diff", "--from", "0", "*"},
		"--to nothing":       {"diff", "--from", "1", "--to", "0", "*"},
		"--to before --from": {"diff", "--from", "2", "--to", "1", "*"},
		"wildcard history":   {"history", "core/*", "a"},
		"compact what":       {"compact"},
		"compact twice":      {"compact", "1", "--keep", "1"},
		"compact a word":     {"compact", "everything"},
		"compact nothing":    {"compact", "0"},
		"keep less":          {"compact", "--keep", "-1"},
	} {
		r := newRunner(t, memoryURL()).run("", args...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", name, r.err)
		require.Empty(t, r.out, name)
	}
}

func TestErrorsContainNoPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"oracle://user:pa55word@host/db", "mem://user:pa55word@x?colour=red", "etcd://user:pa55word@localhost:1/x?colour=red",
		"etcd://user:pa55word@local host:1/x", "mem://user:pa55word@x#y", "mem://x?password=pa55word", "user:pa55word@host",
		"postgres://user:pa55word@local host/db", "postgres://user:pa55word@localhost:1/db?colour=red", "postgres://user:pa55word@localhost:1/db",
	} {
		for _, args := range [][]string{{"list", "*"}, {"schema", "status"}} {
			r := newRunner(t, url).run("", append(args, "--timeout", "10s")...)
			require.NotEqual(t, cli.ExitOK, r.code, url)
			require.NotContains(t, r.err, "pa55word", url)
		}
	}
}

// An error in a file fails the command, and nothing is written.
func TestApplyInvalidFiles(t *testing.T) {
	t.Parallel()
	good := configMap("good", "")
	for name, tc := range map[string]struct{ text, want string }{
		"malformed YAML": {good + "---\na: b: c\n", "bad.yaml: document 2, line 6: malformed YAML"},
		"NUL in a name":  {good + "---\n" + strings.Replace(configMap("X", ""), `"X"`, `"a\0b"`, 1), "bad.yaml: document 2, line 6: invalid argument: id.name contains a NUL byte"},
		"long name":      {good + "---\n" + configMap(strings.Repeat("n", 256), ""), "id.name has 256 bytes"},
		"wildcard":       {good + "---\n" + configMap("*", ""), "id.name is \"*\""},
		"2 MiB":          {good + "---\n" + configMap("big", strings.Repeat("x", 2<<20)), "bad.yaml: document 2, line 6: too large"},
		"twice":          {good + "---\n" + good, "bad.yaml: document 2, line 6: core/ConfigMap default/good is also in"},
		"large number":   {good + "---\n" + configMap("n", "") + "count: 12345678901234567890\n", "bad.yaml: document 2, line 10: the number 12345678901234567890"},
		"own owner": {good + "---\n" + "apiVersion: v1\nkind: A\nmetadata: {name: a, ownerReferences: [{apiVersion: v1, kind: A, name: a}]}",
			"resources own each other in a circle: core/A default/a"},
		"circle": {good + "---\n" + "apiVersion: v1\nkind: A\nmetadata: {name: a, ownerReferences: [{apiVersion: v1, kind: A, name: b}]}\n---\n" +
			"apiVersion: v1\nkind: A\nmetadata: {name: b, ownerReferences: [{apiVersion: v1, kind: A, name: a}]}", "in a circle: core/A default/a, core/A default/b"},
		"no owner": {good + "---\n" + "apiVersion: v1\nkind: A\nmetadata: {name: a, ownerReferences: [{apiVersion: v1, kind: A, name: b}]}",
			"the owner of core/A default/a, core/A default/b, is neither in the files nor in the store"},
	} {
		c := newRunner(t, memoryURL())
		dir := t.TempDir()
		write(t, dir, "a.yaml", configMap("first", ""))
		write(t, dir, "bad.yaml", tc.text)
		r := c.run("", "apply", "-f", dir)
		require.Equal(t, cli.ExitFailed, r.code, name)
		require.Contains(t, r.err, tc.want, name)
		require.Empty(t, r.out, name)
		require.Empty(t, c.ok("", "list", "*", "-A"), name)
	}
	c := newRunner(t, memoryURL())
	require.Equal(t, cli.ExitFailed, c.run("", "apply", "-f", filepath.Join(t.TempDir(), "nowhere.yaml")).code)
	require.Equal(t, cli.ExitFailed, c.run("", "apply", "-f", t.TempDir()).code)
	require.Equal(t, cli.ExitFailed, c.run("# nothing\n", "apply", "-f", "-").code)
	require.Equal(t, cli.ExitFailed, c.run("", "apply", "-f", "-", "-f", "-").code)
}

// Only the store knows its own limit: resources that do not depend on the failure are written, and the error says so.
func TestApplyPartialFailure(t *testing.T) {
	t.Parallel()
	c := newRunner(t, memoryURL()+"?max-size=2000")
	r := c.run(configMap("a", strings.Repeat("x", 5000)), "apply", "-f", "-")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "standard input: document 1, line 1: core/ConfigMap default/a: ")
	require.Contains(t, r.err, "too large")
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	c := newRunner(t, "oracle://is-not-opened")
	require.Contains(t, c.ok(""), "Available Commands:")
	for _, command := range []string{"apply", "get", "list", "watch", "delete", "owned", "types", "schema", "version"} {
		require.Contains(t, c.ok("", command, "--help"), "Usage:\n  ashlar "+command)
	}
	require.Regexp(t, `^ashlar \S+ \(go1\.`, c.ok("", "version"))
	require.Equal(t, cli.ExitUsage, c.run("", "version", "1").code)
	require.Contains(t, c.run("", "wacth").err, "did you mean watch?")
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	c := newRunner(t, memoryURL())
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, c.ok("", "completion", shell), "ashlar")
	}
	propose := func(args ...string) []string {
		var stdout bytes.Buffer
		// The shell's other stream is for debugging of completion.
		code := run(context.Background(), c.app(strings.NewReader(""), &stdout, io.Discard), append([]string{"__completeNoDesc"}, args...))
		require.Equal(t, cli.ExitOK, code)
		out := lines(stdout.String())
		require.Equal(t, ":4", out[len(out)-1], "no file names")
		return out[:len(out)-1]
	}
	require.Empty(t, propose("get", ""), "an empty store")
	c.ok("", "apply", "-f", boutique)
	require.Contains(t, propose("list", ""), "apps/Deployment")
	require.Contains(t, propose("get", ""), "apps/Deployment")
	require.Equal(t, []string{"basket", "basket-db"}, propose("get", "-n", "boutique", "core/Service", "bas"))
	require.Empty(t, propose("get", "core/Service", "bas"), "another namespace")
	require.Empty(t, propose("get", "core/Service", "basket", ""))
	require.Empty(t, propose("get", "Service", ""))
	require.Equal(t, []string{"table", "json", "yaml", "name"}, propose("get", "-o", ""))

	// Without a store there are no proposals, and no store is created.
	home := t.TempDir()
	c = &runner{t: t, env: map[string]string{"HOME": home}}
	require.Empty(t, propose("get", ""))
	entries, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Empty(t, entries)
	c = &runner{t: t, env: map[string]string{}}
	require.Empty(t, propose("get", ""))
	c = &runner{t: t, env: map[string]string{"ASHLAR_STORE": "sqlite://" + filepath.Join(home, "store.db")}}
	require.Empty(t, propose("get", ""))
	entries, err = os.ReadDir(home)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	c := newRunner(t, memoryURL())
	for timeout := 2 * time.Second; ; timeout *= 4 { // a timeout before the watch is open is an error
		w := c.run("", "watch", "*", "--timeout", timeout.String())
		if w.code == cli.ExitOK {
			break
		}
		require.Less(t, timeout, 30*time.Second, "a watch for a while: %s", w.err)
	}
	// No server listens on this port.
	r := newRunner(t, "etcd://127.0.0.1:1/x").run("", "list", "*", "--timeout", "300ms")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "timed out after 300ms")
	require.Equal(t, cli.ExitUsage, newRunner(t, "").run("", "list", "*").code, "no home, no default store")
}
