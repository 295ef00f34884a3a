package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copied file cannot be migrated to its original before it has an identity of its own. An abort of stores that do not belong together
// must be forced, and warns before it opens the source.
func TestCopiedAndRestoredStores(t *testing.T) {
	t.Parallel()
	original, copied := fileURL(t), fileURL(t)
	c := newRunner(t, original)
	c.ok("", "apply", "-f", boutique)
	c.ok("", "migrate", "--from", original, "--to", memoryURL()) // gives it an identity
	content, err := os.ReadFile(strings.TrimPrefix(original, "sqlite://"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(strings.TrimPrefix(copied, "sqlite://"), content, 0o600))
	back := []string{"migrate", "--mirror", "--live", "--cutover-when-lag-below", "1m", "--from", copied, "--to", original}
	require.Contains(t, c.run("", back...).err, "source and target are the same store")
	require.Contains(t, c.ok("", "store", "new-id", "--store", copied), "new identity")
	require.Contains(t, c.ok("", back...), "complete: ")

	stores := []string{"--from", copied, "--to", createStore(t, memoryURL())}
	require.Contains(t, c.run("", append([]string{"migrate", "abort"}, stores...)...).err, "--force")
	r := c.run("", append([]string{"migrate", "abort", "--force"}, stores...)...)
	require.Contains(t, r.out, "warning: opening "+copied+", which was closed because it has moved to "+original)
	require.Contains(t, r.out, "the source accepts writes")
	require.Contains(t, c.ok("", "migrate", "status", "--store", copied), "open, and not the target")
}
