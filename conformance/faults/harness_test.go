package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// memoryHarness is a store in memory, without faults. Package conformance proves the checks of this package with planted defects.
func memoryHarness() Harness {
	storeURL := fmt.Sprint("mem://faults-", rand.Uint64())
	h := Harness{
		Open:   func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, storeURL) },
		Exempt: map[Kind]string{},
	}
	for _, kind := range Kinds() {
		h.Exempt[kind] = "a test"
	}
	return h
}

// TestExemptions rejects harnesses without a fault or an exemption for some kind.
func TestExemptions(t *testing.T) {
	h := memoryHarness()
	delete(h.Exempt, SkewClock)
	h.Faults = []Fault{{Kind: Cut, Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) { return nil, nil }}}
	h.Exempt["earthquake"] = "none here"
	_, err := Run(t.Context(), h, Options{})
	for _, want := range []string{`no fault of kind "skew clock"`, `a fault of kind "cut" although`, `"earthquake"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

// A backend that cannot be read as it was is refused if the harness does not say why, and one that can if it says why not.
func TestNoHistorian(t *testing.T) {
	h := memoryHarness()
	h.NoHistorian = "none here"
	if _, err := Run(t.Context(), h, Options{}); err == nil || !strings.Contains(err.Error(), "although Harness.NoHistorian says: none here") {
		t.Errorf("got error %v", err)
	}
	open := h.Open
	h.NoHistorian, h.Open = "", func(ctx context.Context) (storage.Backend, error) {
		b, err := open(ctx)
		return struct{ storage.Backend }{b}, err
	}
	if _, err := Run(t.Context(), h, Options{}); err == nil || !strings.Contains(err.Error(), "is no history.Historian") {
		t.Errorf("got error %v", err)
	}
}

// A run that is given up ends, however patient it is.
func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := memoryHarness()
	delete(h.Exempt, Cut)
	h.Faults = []Fault{{Kind: Cut, Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) { cancel(); return nil, nil }}}
	_, err := Run(ctx, h, Options{For: time.Hour, Round: time.Hour, Timeout: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}
