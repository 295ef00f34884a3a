//go:build unix && !solaris && !illumos && !aix

package serve

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A server whose socket was deleted does not delete the socket of its successor when it ends.
func TestEndAfterSocketWasReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "grpc")
	first, err := listen(t.Context(), unixPrefix+path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := listen(t.Context(), unixPrefix+path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first[0].Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatalf("the successor cannot be reached: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := second[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket of a server that ended is left: %v", err)
	}
}
