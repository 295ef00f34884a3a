package bboltstore

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		os.Exit(m.Run())
	}
}

// localExemptions contains the reasons why most faults do not apply to a local file.
var localExemptions = func() map[faults.Kind]string {
	exempt := map[faults.Kind]string{}
	for reason, kinds := range map[string][]faults.Kind{
		"there is no connection: the database is a file":                         {faults.Cut, faults.Delay, faults.Throttle, faults.LoseAnswer},
		"there is no server: the process has the file":                           {faults.Pause, faults.KillServer, faults.CrashSession, faults.Restart},
		"there is one copy of the data":                                          {faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader},
		"clocks are used only for deadlines":                                     {faults.SkewClock},
		"a disk that stalls or is full needs a file system of its own, and root": {faults.StallDisk, faults.FillDisk},
	} {
		for _, kind := range kinds {
			exempt[kind] = reason
		}
	}
	return exempt
}()

// noHistorian is the reason why the past cannot be read.
const noHistorian = "the log has no index by key"

// exempt returns localExemptions with one more reason.
func exempt(reason string, kinds ...faults.Kind) map[faults.Kind]string {
	all := maps.Clone(localExemptions)
	for _, kind := range kinds {
		all[kind] = reason
	}
	return all
}

// The process with the open file is killed and frozen at any moment; the next one opens the file. There is one handle, in that
// process, because bbolt allows one process per file.
func TestFaultsKill(t *testing.T) {
	processes := faults.NewProcesses("bbolt:" + filepath.Join(t.TempDir(), "store.db"))
	faults.Test(t, faults.Harness{
		Open:   processes.Open,
		Faults: processes.Faults(),
		Exempt: exempt("only the process with the open file could do it; see TestFaultsCompact", faults.Compact),

		NoHistorian: noHistorian,
	}, faults.Options{Seed: 4711, For: 12 * time.Second, Handles: 1})
}

// History is deleted while several handles of this process watch and write.
func TestFaultsCompact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	faults.Test(t, faults.Harness{
		Open: func(context.Context) (storage.Backend, error) { return Open(path, nil) },
		Faults: []faults.Fault{{Kind: faults.Compact, Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) {
			return nil, fileAt(path).compact()
		}}},
		Exempt: exempt("it would be this process; see TestFaultsKill", faults.KillClient, faults.FreezeClient),

		NoHistorian: noHistorian,
	}, faults.Options{Seed: 4711, For: 8 * time.Second})
}

// compact deletes all history so far, as a small History does gradually.
func (f *file) compact() error {
	f.writer <- struct{}{}
	defer func() { <-f.writer }()
	tx, err := f.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	t := txn{Tx: tx}
	if t.trim(0); t.err != nil {
		return t.err
	}
	return tx.Commit()
}
