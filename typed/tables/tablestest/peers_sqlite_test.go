package tablestest

import (
	"path/filepath"
	"strings"
	"testing"
)

func peersOnSQLite(t *testing.T) PeerOptions {
	return PeerOptions{URL: "sqlite:" + filepath.Join(t.TempDir(), "store.db"), Ordered: true}
}

func TestPeersOnSQLite(t *testing.T) {
	t.Parallel()
	RunPeers(t, peersOnSQLite(t))
}

// The histories detect processes that do not compare their reads.
func TestPeersDetectMissingChecks(t *testing.T) {
	t.Parallel()
	o := peersOnSQLite(t)
	o.SkipChecks = true
	if err := runPeers(t, o); err == nil || !strings.Contains(err.Error(), "not serializable") {
		t.Errorf("two processes that do not compare their reads: %v", err)
	}
}

// A program that does not call ServePeer must not start copies of itself recursively.
func TestPeersStartNoPeers(t *testing.T) {
	t.Setenv(peerVariable, "1")
	if err := (&remote{}).start(); err == nil {
		t.Error("a peer has started another peer")
	}
}
