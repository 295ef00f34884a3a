// Package torture says how long, and from which seed, a test of faults runs: short ones in every test run, long ones by make
// torture.
package torture

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/conformance/faults"
)

// Options are what the environment asks for: ASHLAR_TORTURE_FOR, a duration, and ASHLAR_TORTURE_SEED. What a violation is about is
// written to ASHLAR_TORTURE_DIR, or to a folder that stays.
func Options(t testing.TB) faults.Options {
	t.Helper()
	o := faults.Options{For: 12 * time.Second, Calm: 2 * time.Second, Directory: os.Getenv("ASHLAR_TORTURE_DIR")}
	if o.Directory == "" {
		o.Directory = os.TempDir() + "/ashlar-torture"
	}
	var err error
	if text := os.Getenv("ASHLAR_TORTURE_FOR"); text != "" {
		if o.For, err = time.ParseDuration(text); err != nil {
			t.Fatalf("ASHLAR_TORTURE_FOR: %v", err)
		}
	}
	if text := os.Getenv("ASHLAR_TORTURE_SEED"); text != "" {
		if o.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ASHLAR_TORTURE_SEED: %v", err)
		}
	}
	return o
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
