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
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
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

// lateBookmarks is a backend whose watches register a request of a bookmark and, now and then, return the error of the context after that.
type lateBookmarks struct {
	storage.Backend
	storage.Pager
	storage.Resumer
	history.Historian
}

func (b lateBookmarks) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return lateBookmark{w}, err
}

func (b lateBookmarks) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	w, err := b.Resumer.WatchFrom(ctx, typ, tenancy, prefix, cursor)
	return lateBookmark{w}, err
}

type lateBookmark struct{ storage.Watch }

func (w lateBookmark) Bookmark(ctx context.Context) error {
	err := w.Watch.(storage.Bookmarker).Bookmark(ctx)
	if err == nil && rand.IntN(2) == 0 {
		<-ctx.Done()
		err = ctx.Err()
	}
	return err
}

// The request of a bookmark may be registered although its caller got no answer in time. A watch that cannot be resumed is kept.
func TestLateBookmarks(t *testing.T) {
	t.Parallel()
	for _, noResumer := range []string{"", "a test"} {
		h := memoryHarness()
		open := h.Open
		h.NoResumer, h.Open = noResumer, func(ctx context.Context) (storage.Backend, error) {
			b, err := open(ctx)
			if err != nil {
				return nil, err
			}
			pager, _ := storage.As[storage.Pager](b)
			resumer, _ := storage.As[storage.Resumer](b)
			historian, _ := storage.As[history.Historian](b)
			late := lateBookmarks{b, pager, resumer, historian}
			if noResumer != "" {
				return struct {
					storage.Backend
					history.Historian
				}{late, historian}, nil
			}
			return late, nil
		}
		result, err := Run(t.Context(), h, Options{Seed: 1, For: time.Second, Round: time.Second, NoLeakCheck: true}) // other tests run at the same time
		if err != nil || len(result.Violations) > 0 {
			t.Errorf("without a Resumer %q: violations %v, error %v", noResumer, result.Violations, err)
		}
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
