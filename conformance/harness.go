package conformance

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Harness opens the backend under test and lists the promises that it does not make.
//
// Set either URL or Open. Everything else is optional. An adapter that leaves a part out must give the reason as a sentence of
// text, which the suite prints.
type Harness struct {
	// URL returns the URL of a new, empty store, for an adapter that is registered with storage.Open. The suite opens several
	// handles on it, also at the same time, and closes them. The harness removes the store itself (a file, a schema) by
	// t.Cleanup.
	URL func(t testing.TB) string

	// Open returns a handle on a new, empty store without a URL: a layer around another backend, or an adapter with its own client.
	// The suite closes the handle.
	Open func(t testing.TB) storage.Backend

	// Another returns a second handle on the store of b, a result of Open that may be closed by now. The suite closes the new
	// handle. It is not used with URL. It is nil if a store has only one handle; OneHandle then gives the reason.
	Another func(t testing.TB, b storage.Backend) storage.Backend

	// Backup takes a backup of the store of b. The returned function restores it in place of everything written since, or opens a
	// copy in another place, and returns a handle on the result, which the suite closes. Backup gets the t that URL or Open got for
	// the store. Set it if the adapter promises that versions are not reused even after a restore.
	Backup func(t testing.TB, b storage.Backend) (restore func() storage.Backend)

	// Replace replaces the encoded resource under a key in the store at a URL by other bytes, as a change that the adapter's history
	// shows. If it is nil, the topic Damage is left out.
	Replace func(t testing.TB, storeURL string, id *resourcepb.ID, data []byte)

	// Processes reports that the program calls faults.ServeProcess at the start of TestMain. The topic Processes and the case Load/Faults
	// then open handles in processes of their own; Load/Faults kills and stops these. It is not used without URL.
	Processes bool

	// Faults returns faults of the database at a URL, which Load/Faults injects. They must not affect other stores. It is not used without
	// URL. If it is nil and Processes is not set, the case is left out; package faults has harnesses for longer runs.
	Faults func(t testing.TB, storeURL string) []faults.Fault

	// MaxSize is the largest resource in bytes; 0 means 1 MiB.
	MaxSize int

	// Slow reports that a write takes milliseconds: cases that need load then make a quarter of it.
	Slow bool

	// Timeout is the maximum time for anything that must happen; 0 means a minute. Set a shorter time only for a backend that
	// is expected to fail.
	Timeout time.Duration

	// OneHandle is the reason why a store cannot be opened twice.
	OneHandle string
	// NoPager is the reason why the backend is no storage.Pager.
	NoPager string
	// NoResumer is the reason why the backend is no storage.Resumer.
	NoResumer string
	// NoTransactor is the reason why the backend is no storage.Transactor.
	NoTransactor string
	// NoBookmarker is the reason why a watch is no storage.Bookmarker.
	NoBookmarker string
	// NoHistorian is the reason why the backend is no history.Historian.
	NoHistorian string
	// NoCompact is the reason why the history of a store cannot be compacted while other cases run.
	NoCompact string
	// NoCommitBounds is the reason why events do not report whether their commit continues.
	NoCommitBounds string
	// ListIsNoSnapshot is the reason why a list, or its pages, are not a single cut through the store. A cursor from such a list,
	// also from shortly after the snapshot of a watch, may repeat changes that the list already included.
	ListIsNoSnapshot string
	// NoOrderAcrossKeys is the reason why events of different keys may come in another order than their commits.
	NoOrderAcrossKeys string
	// MergesEvents is the reason why a watch may omit versions of a key that were soon replaced. It always returns the last
	// version.
	MergesEvents string

	// NoMover is the reason why the backend has no driver.Mover; the two reasons below are then not needed.
	NoMover string
	// NoGuards is the reason why the backend has no driver.GuardedMover.
	NoGuards string
	// NoBulk is the reason why the backend has no driver.Bulk.
	NoBulk string
}

// A need is a requirement of a case.
type need int

const (
	needAnother need = 1 << iota
	needURL
	needBackup
	needPager
	needResumer
	needTransactor
	needBookmarker
	needBounds
	needHistorian
	needCompact
	needMover
	needGuards
	needBulk
	needReplace
	needEveryEvent
	needOneCut
	needFaults
	needProcesses
)

// exempt returns the reason why a case with these needs is omitted, or "".
func (h *Harness) exempt(n need) string {
	for _, e := range []struct {
		need   need
		reason string
	}{
		{needAnother, h.OneHandle},
		{needURL, reasonIf(h.URL == nil, "the harness has no URL")},
		{needBackup, reasonIf(h.Backup == nil, "the harness cannot restore a backup of this store")},
		{needPager, h.NoPager},
		{needResumer, h.NoResumer},
		{needTransactor, h.NoTransactor},
		{needBookmarker, h.NoBookmarker},
		{needBounds, h.NoCommitBounds},
		{needHistorian, h.NoHistorian},
		{needCompact, h.NoCompact},
		{needEveryEvent, h.MergesEvents},
		{needOneCut, h.ListIsNoSnapshot},
		{needFaults, reasonIf(!h.Processes && h.Faults == nil, "the harness has no faults")},
		{needProcesses, reasonIf(!h.Processes, "the program serves no handles in other processes")},
		{needReplace, reasonIf(h.Replace == nil, "the harness cannot replace the bytes of a stored resource")},
		{needMover, h.NoMover},
		{needGuards, cmp.Or(h.NoMover, h.NoGuards)},
		{needBulk, cmp.Or(h.NoMover, h.NoBulk)},
	} {
		if n&e.need != 0 && e.reason != "" {
			return e.reason
		}
	}
	return ""
}

func reasonIf(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// complete sets defaults and rejects a harness that contradicts itself.
func (h *Harness) complete(t testing.TB) {
	t.Helper()
	if h.MaxSize == 0 {
		h.MaxSize = 1 << 20
	}
	if h.Timeout == 0 {
		h.Timeout = time.Minute
	}
	if (h.URL == nil) == (h.Open == nil) {
		t.Fatal("conformance: set one of Harness.URL and Harness.Open")
	}
	if h.URL == nil && h.Another == nil && h.OneHandle == "" {
		t.Fatal("conformance: without Harness.Another, Harness.OneHandle must say why")
	}
}

// Store creates a new, empty store, and returns a function that opens handles, which the caller closes. The URL is "" if Harness.URL is not
// set. Run calls Store for each case; so do the runners of other suites, which thus use the harness of an adapter as it is.
func (h *Harness) Store(t testing.TB) (storeURL string, open func(context.Context) (storage.Backend, error)) {
	t.Helper()
	if h.URL != nil {
		storeURL = h.URL(t)
		return storeURL, func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, storeURL) }
	}
	var first storage.Backend
	return "", func(context.Context) (storage.Backend, error) {
		if first != nil {
			return h.Another(t, first), nil
		}
		first = h.Open(t)
		return first, nil
	}
}

// caseTime returns the maximum duration of a case.
func (h *Harness) caseTime() time.Duration { return max(5*h.Timeout, time.Minute) }
