//go:build integration

package env

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestOrphaned(t *testing.T) {
	t.Parallel()
	if isOrphan(owner()) {
		t.Error("the running process counts as ended")
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if !isOrphan(describe(gone.Process.Pid)) {
		t.Error("an ended process does not count as ended")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if reused := host + "/another boot/" + strconv.Itoa(os.Getpid()) + "/1"; !isOrphan(reused) {
		t.Error("a process id that was given out again counts as its earlier owner")
	}
	if isOrphan("elsewhere/boot/1/1") {
		t.Error("a process of another machine counts as ended")
	}
}
