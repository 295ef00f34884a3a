package main

import (
	"path/filepath"
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
