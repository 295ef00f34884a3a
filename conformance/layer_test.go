package conformance

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A bare handle has no capabilities, one handle for each store, and watches without cursors: the minimum of a backend. The
// suite must apply to it as well.
type bare struct{ storage.Backend }

func (b bare) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	return noCursor{w}, nil
}

type noCursor struct{ storage.Watch }

func (noCursor) Cursor() string { return "" }

func bareHarness(wrap func(storage.Backend) storage.Backend) Harness {
	return Harness{
		Open:              func(testing.TB) storage.Backend { return wrap(newStore("").open()) },
		Slow:              true,
		OneHandle:         "the least that a backend may be",
		NoPager:           "the least that a backend may be",
		NoResumer:         "the least that a backend may be",
		NoTransactor:      "the least that a backend may be",
		NoBookmarker:      "the least that a backend may be",
		NoHistorian:       "the least that a backend may be",
		NoMover:           "the least that a backend may be",
		NoCommitBounds:    "the least that a backend may be",
		ListIsNoSnapshot:  "the least that a backend may be",
		NoOrderAcrossKeys: "the least that a backend may be",
		MergesEvents:      "the least that a backend may be",
	}
}

func TestBareBackend(t *testing.T) {
	Run(t, bareHarness(func(b storage.Backend) storage.Backend { return bare{b} }))
}

// TestHalfCapability checks backends that offer a part of a capability: cursors without storage.Resumer, bookmarks or commit
// bounds in spite of an exemption.
func TestHalfCapability(t *testing.T) {
	for _, name := range []string{"Cursors/NoHalfCapability", "Bookmarks/NoHalfCapability"} {
		h := bareHarness(func(b storage.Backend) storage.Backend { return struct{ storage.Backend }{b} })
		h.complete(t)
		findHalf(t, h, name)
	}
	h := harnessOf("")
	h.NoCommitBounds = "a test"
	h.complete(t)
	findHalf(t, h, "Histories/Watches")
}

func findHalf(t *testing.T, h Harness, name string) {
	t.Helper()
	if r := checkCase(t.Context(), &h, name, caseNamed(t, name)); r.Failure == "" {
		t.Errorf("%s did not find half a capability: %s", name, r.Log)
	}
}
