package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/torture"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// TestTorture runs several processes on one file, and kills and stops them while they hold locks.
func TestTorture(t *testing.T) { torture.Run(t, "sqlite", tortureFile) }

func tortureFile(t *testing.T, o faults.Options) {
	file := "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "torture.db"))
	processes := faults.NewProcesses(file)
	h := faults.Harness{Open: processes.Open, Around: torture.Opener(file), Faults: processes.Faults()}
	torture.Exempt(&h, "there is no connection", faults.Cut, faults.Delay, faults.Throttle, faults.LoseAnswer)
	torture.Exempt(&h, "there is no server but the processes that use the file",
		faults.Pause, faults.KillServer, faults.CrashSession, faults.Restart, faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "there is one clock, the host's", faults.SkewClock)
	torture.Exempt(&h, "the disk is the host's", faults.StallDisk, faults.FillDisk)
	h.Faults = append(h.Faults, torture.Compact(func(ctx context.Context) error { return moveHorizon(ctx, file) }))
	faults.Test(t, h, o)
	if err := checkIntegrity(file); err != nil {
		t.Errorf("after kills: %v", err)
	}
}

// checkIntegrity lets SQLite check every page and index of a file.
func checkIntegrity(file string) error {
	db, err := sqlite3.Open(strings.TrimPrefix(file, "sqlite://"))
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.BusyTimeout(time.Minute); err != nil {
		return err
	}
	check, _, err := db.Prepare(`PRAGMA integrity_check`)
	if err != nil {
		return err
	}
	defer check.Close()
	for check.Step() {
		if found := check.ColumnText(0); found != "ok" {
			return fmt.Errorf("integrity_check: %s", found)
		}
	}
	return check.Err()
}

// moveHorizon moves the horizon as far as pruning may.
func moveHorizon(ctx context.Context, file string) error {
	db, err := sqlite3.Open(strings.TrimPrefix(file, "sqlite://"))
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		if err := db.BusyTimeout(time.Minute); err != nil { // the holder of the lock may be stopped
			return err
		}
		err = db.Exec(`UPDATE meta SET (followed, horizon) = (SELECT max(seq), max(seq) FROM log)`)
		if err == nil || ctx.Err() != nil || !errors.Is(err, sqlite3.BUSY) {
			return err
		}
	}
}
