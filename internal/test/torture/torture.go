// Package torture defines the duration and the seeds of a test of faults: short with fixed seeds in make test, long with random
// seeds in make torture.
package torture

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/conformance/faults"
)

// A round in make test is short. The round proves that the harness works and that known violations stay fixed. make torture searches.
const (
	roundTime  = 12 * time.Second
	replayTime = 8 * time.Second // for each seed of a test with several
)

// Run runs a test of faults once for each seed of a database, each time with the options of that run. The test prepares a fresh store.
//
// The environment overrides the seeds and the time: ASHLAR_TORTURE_SEED is a number, or "random"; ASHLAR_TORTURE_FOR is a duration. The
// history of a violation is written to ASHLAR_TORTURE_DIR, or to a folder below the system's temporary one.
func Run(t *testing.T, database string, test func(t *testing.T, o faults.Options)) {
	t.Helper()
	o := faults.Options{For: roundTime, Calm: 2 * time.Second, Directory: os.Getenv("ASHLAR_TORTURE_DIR")}
	if o.Directory == "" {
		o.Directory = os.TempDir() + "/ashlar-torture"
	}
	list := seedsOf(t, database)
	if len(list) > 1 {
		o.For = replayTime
	}
	if text := os.Getenv("ASHLAR_TORTURE_FOR"); text != "" {
		var err error
		if o.For, err = time.ParseDuration(text); err != nil {
			t.Fatalf("ASHLAR_TORTURE_FOR: %v", err)
		}
	}
	if len(list) == 1 {
		o.Seed = list[0]
		test(t, o)
		return
	}
	for _, o.Seed = range list {
		t.Run(strconv.FormatUint(o.Seed, 10), func(t *testing.T) { test(t, o) })
	}
}

// seedsOf returns the seeds of a database's tests; 0 is a random one.
func seedsOf(t *testing.T, database string) []uint64 {
	t.Helper()
	switch text := os.Getenv("ASHLAR_TORTURE_SEED"); text {
	case "":
		list := seeds[database]
		if len(list) == 0 {
			t.Fatalf("internal/test/torture/seeds.go has no seeds for %q", database)
		}
		return list
	case "random":
		return []uint64{0}
	default:
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil || seed == 0 {
			t.Fatalf("ASHLAR_TORTURE_SEED is %q, expected a number greater than 0, or random", text)
		}
		return []uint64{seed}
	}
}

// Exempt adds kinds that the database of a harness cannot suffer, for one reason.
func Exempt(h *faults.Harness, reason string, kinds ...faults.Kind) {
	if h.Exempt == nil {
		h.Exempt = map[faults.Kind]string{}
	}
	for _, kind := range kinds {
		h.Exempt[kind] = reason
	}
}
