package conformance

import (
	"cmp"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
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

	// Open returns a handle on a new, empty store, where there is no URL: a layer around another backend, or an adapter
	// with a client of its own. The suite closes the handle.
	Open func(t testing.TB) storage.Backend

	// Another returns a second handle on the store of b, which a call of Open returned and which may be closed by now. The
	// suite closes the new handle. Not used with URL. Nil where a store has one handle only; then OneHandle says why.
	Another func(t testing.TB, b storage.Backend) storage.Backend

	// Backup takes a backup of the store of b and returns a function that puts it back, in place of all that was written
	// since, and returns a handle on the outcome, which the suite closes; a copy that is opened in another place does as
	// well. It gets the t that URL or Open got for the store. Set it where the adapter promises that versions
	// are never used again even then.
	Backup func(t testing.TB, b storage.Backend) (restore func() storage.Backend)

	// Replace replaces the encoded resource under a key in the store at a URL by other bytes, as a change that the adapter's history
	// shows. If it is nil, the topic Damage is left out.
	Replace func(t testing.TB, storeURL string, id *resourcepb.ID, data []byte)

	// MaxSize is the largest resource in bytes; 0 means 1 MiB.
	MaxSize int

	// Slow says that a write takes milliseconds: the cases that need load make do with a quarter of it.
	Slow bool

	// Timeout is the maximum time for anything that must happen; 0 means a minute. Set a shorter time only for a backend that
	// is expected to fail.
	Timeout time.Duration

	// OneHandle says why a store cannot be opened twice.
	OneHandle string
	// NoPager says why the backend is no storage.Pager.
	NoPager string
	// NoResumer says why the backend is no storage.Resumer.
	NoResumer string
	// NoTransactor says why the backend is no storage.Transactor.
	NoTransactor string
	// NoBookmarker says why a watch is no storage.Bookmarker.
	NoBookmarker string
	// NoHistorian says why the backend is no history.Historian.
	NoHistorian string
	// NoCompact says why the history of a store cannot be compacted while other cases run.
	NoCompact string
	// NoCommitBounds says why events do not report whether their commit continues.
	NoCommitBounds string
	// ListIsNoSnapshot says why a list, or the pages of one, are no single cut through the store. A cursor taken from such
	// a list may bring changes again that the list already showed.
	ListIsNoSnapshot string
	// NoOrderAcrossKeys says why events of different keys may come in another order than they were committed in.
	NoOrderAcrossKeys string
	// MergesEvents says why a watch may leave out versions of a key that were soon replaced. The last version is always shown.
	MergesEvents string

	// NoMover says why the backend has no driver.Mover; the two reasons below are then not needed.
	NoMover string
	// NoGuards says why the backend has no driver.GuardedMover.
	NoGuards string
	// NoBulk says why the backend has no driver.Bulk.
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
)

// exempt returns why a case with these needs is left out, or "".
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

// complete fills in defaults and refuses a harness that contradicts itself.
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

// caseTime is how long a case may take at most.
func (h *Harness) caseTime() time.Duration { return max(5*h.Timeout, time.Minute) }
