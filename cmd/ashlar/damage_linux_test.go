package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// A damaged resource stays in the store if it cannot be written to the quarantine.
func TestFsckOnFullDisk(t *testing.T) {
	t.Parallel()
	c := damagedStore(t)
	r := c.run("", "fsck", "--quarantine", "/dev/full")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "no space left on device")
	require.Contains(t, r.out, "not moved")
	require.Contains(t, c.run("", "fsck").err, "2 damaged")
}
