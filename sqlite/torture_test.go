package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/torture"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// TestTorture has several processes use one file, kills them and stops them, with the locks that they hold.
func TestTorture(t *testing.T) {
	file := "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "torture.db"))
	processes := faults.NewProcesses(file)
	h := faults.Harness{Open: processes.Open, Around: torture.Opener(file), Faults: processes.Faults()}
	torture.Exempt(&h, "there is no connection", faults.Cut, faults.Delay, faults.Throttle, faults.LoseAnswer)
	torture.Exempt(&h, "there is no server but the processes that use the file",
		faults.Pause, faults.KillServer, faults.CrashSession, faults.Restart, faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "there is one clock, the host's", faults.SkewClock)
	torture.Exempt(&h, "the disk is the host's", faults.StallDisk, faults.FillDisk)
	torture.Exempt(&h, "history is kept for longer than a run takes", faults.Compact)
	faults.Test(t, h, torture.Options(t))
}
