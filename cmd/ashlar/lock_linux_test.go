package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A command does not outlive a holder that is killed.
func TestLockWhoseHolderIsKilled(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	p := holding(t, url, `echo held; exec sleep 1000`, "--ttl", "1s")
	require.NoError(t, p.cmd.Process.Kill())
	require.Equal(t, -1, p.end()) // and the command's end of the pipe is closed
	newCLI(t, url).ok("", "lock", "job", "--", "true")
}
