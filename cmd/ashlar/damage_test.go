package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// Errors name a damaged resource, so that an operator can find and delete it.
func TestDeleteDamaged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	c := newRunner(t, "sqlite:"+path)
	c.ok(`{"apiVersion":"core/v1","kind":"ConfigMap","metadata":{"name":"broken"}}`, "apply", "-f", "-")
	db, err := sqlite3.Open(path)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Exec("UPDATE resources SET data = x'ff'"))

	for _, args := range [][]string{{"get", "core/ConfigMap", "broken"}, {"list", "*"}, {"export", filepath.Join(t.TempDir(), "out")}} {
		r := c.run("", args...)
		require.Equal(t, cli.ExitFailed, r.code, "%v", args)
		require.Contains(t, r.err, `"broken" of core/ConfigMap`)
		require.Contains(t, r.err, "damaged")
	}
	c.ok("", "delete", "core/ConfigMap", "broken")
	require.NotContains(t, c.ok("", "list", "*"), "broken")
}

// damagedStore returns a runner on a store with two damaged resources of four.
func damagedStore(t *testing.T) *runner {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	c := newRunner(t, "sqlite:"+path)
	require.Equal(t, "checked 0 resources\n", c.ok("", "fsck"))
	for _, name := range []string{"a", "broken-1", "broken-2", "z"} {
		c.ok(configMap(name, "1"), "apply", "-f", "-")
	}
	db, err := sqlite3.Open(path)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Exec("UPDATE resources SET data = x'ff' WHERE instr(key, 'broken') > 0"))
	return c
}

// fsck reports every damaged resource. With --quarantine it moves the stored bytes to a file.
func TestFsck(t *testing.T) {
	t.Parallel()
	c := damagedStore(t)
	r := c.run("", "fsck")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "the store has 2 damaged resources")
	for _, name := range []string{"broken-1", "broken-2"} {
		require.Equal(t, 1, strings.Count(r.out, "core/ConfigMap/"+name+" in default/default, version "), r.out)
	}
	file := filepath.Join(t.TempDir(), "damaged.jsonl")
	require.Equal(t, cli.ExitFailed, c.run("", "fsck", "--quarantine", filepath.Join(file, "none")).code)
	require.Contains(t, c.run("", "fsck").err, "2 damaged", "nothing is deleted without a quarantine")
	moved := c.ok("", "fsck", "--quarantine", file)
	require.Equal(t, 2, strings.Count(moved, ", moved to the quarantine: "), moved)
	require.Contains(t, moved, "checked 2 resources\n")
	require.Equal(t, "checked 2 resources\n", c.ok("", "fsck"))
	require.Equal(t, []string{"core/ConfigMap/a", "core/ConfigMap/z"}, lines(c.ok("", "list", "*", "-o", "name")))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for i, line := range lines(string(text)) {
		var q quarantineLine
		require.NoError(t, json.Unmarshal([]byte(line), &q))
		require.Equal(t, []any{"core/ConfigMap", "default", fmt.Sprintf("broken-%d", i+1), []byte{0xff}}, []any{q.Type, q.Namespace, q.Name, q.Data})
		require.NotEmpty(t, q.Uid)
		require.NotEmpty(t, q.Version)
	}
}

// Two operators move the damaged resources at once, to one file.
func TestFsckTwice(t *testing.T) {
	t.Parallel()
	c := damagedStore(t)
	file := filepath.Join(t.TempDir(), "damaged.jsonl")
	var operators sync.WaitGroup
	for range 2 {
		operators.Go(func() {
			if r := c.run("", "fsck", "--quarantine", file); r.code != cli.ExitOK {
				t.Error(r.err, r.out)
			}
		})
	}
	operators.Wait()
	require.Equal(t, "checked 2 resources\n", c.ok("", "fsck"))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	saved := map[string]bool{}
	for _, line := range lines(string(text)) {
		var q quarantineLine
		require.NoError(t, json.Unmarshal([]byte(line), &q), line)
		saved[q.Name] = true
	}
	require.Len(t, saved, 2)
}
