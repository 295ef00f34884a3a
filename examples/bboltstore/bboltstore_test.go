package bboltstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var (
	thing    = storage.UnversionedType{Group: "demo", Kind: "Thing"}
	anywhere = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

func newThing(name string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Thing"},
		Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"}, Name: name, Uid: "uid of " + name}}
}

// writes writes a resource n times, and returns the stored resource of each write.
func writes(t *testing.T, b *Backend, name string, n int) (stored []*resourcepb.Resource) {
	t.Helper()
	res := newThing(name)
	for range n {
		next, err := b.WriteCAS(t.Context(), res)
		if err != nil {
			t.Fatal(err)
		}
		res = next
		stored = append(stored, res)
	}
	return stored
}

// upTo reads a watch until its bookmark, and returns the written resources, and the cursor after each.
func upTo(t *testing.T, w storage.Watch) (written []*resourcepb.Resource, cursors []string) {
	t.Helper()
	if err := w.(storage.Bookmarker).Bookmark(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		ev, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetBookmark() != nil {
			return written, cursors
		}
		if ev.GetUpsert() != nil {
			written, cursors = append(written, ev.GetUpsert().GetResource()), append(cursors, w.Cursor())
		}
	}
}

func watch(t *testing.T, b *Backend, cursor string) storage.Watch {
	t.Helper()
	w, err := b.WatchList(t.Context(), thing, anywhere, "")
	if cursor != "" {
		w, err = b.WatchFrom(t.Context(), thing, anywhere, "", cursor)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// The log keeps Options.History changes.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	b := opened(t, filepath.Join(t.TempDir(), "store.db"), &Options{History: 10})
	defer b.Close()
	w := watch(t, b, "")
	var stored []*resourcepb.Resource
	var cursors []string
	for _, name := range []string{"a", "b", "c"} {
		// At most as many at a time as the log keeps, because a watch that lags further cannot continue.
		stored = append(stored, writes(t, b, name, 10)...)
		_, seen := upTo(t, w)
		cursors = append(cursors, seen...)
	}

	events, _ := upTo(t, watch(t, b, cursors[19])) // ten changes came after it
	if len(events) != 10 || events[9].Version != stored[29].Version {
		t.Errorf("a watch that resumes ten changes back returns %d", len(events))
	}
	old, err := b.WatchFrom(t.Context(), thing, anywhere, "", cursors[18])
	if err == nil {
		_, err = old.Next(t.Context())
		old.Close()
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a watch that resumes eleven changes back: %v", err)
	}
}

// A cursor from after a copy was made is refused by the copy, however many changes follow there.
func TestCursorOfALostFuture(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := opened(t, path, nil)
	defer b.Close()
	w := watch(t, b, "")
	before := writes(t, b, "a", 3)
	copied := copyOf(t, path)
	writes(t, b, "b", 3)
	_, cursors := upTo(t, w)

	restored := opened(t, copied, nil)
	defer restored.Close()
	writes(t, restored, "c", 10)
	if events, _ := upTo(t, watch(t, restored, cursors[len(before)-1])); len(events) != 10 {
		t.Errorf("a watch from a cursor before the copy returns %d changes, not 10", len(events))
	}
	lost, err := restored.WatchFrom(t.Context(), thing, anywhere, "", cursors[len(before)])
	if err == nil {
		_, err = lost.Next(t.Context())
		lost.Close()
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a watch from a cursor after the copy: %v", err)
	}
}

// The owner of a damaged resource is unknown until the resource is replaced.
func TestOwnerOfDamaged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := opened(t, path, nil)
	defer b.Close()
	owner := writes(t, b, "owner", 1)[0]
	child := newThing("child")
	child.Owner = owner.Id
	child, err := b.WriteCAS(t.Context(), child)
	if err != nil {
		t.Fatal(err)
	}
	if err := fileAt(path).replace(child.Id, []byte("no resource")); err != nil {
		t.Fatal(err)
	}
	var damaged *storage.DamagedError
	if ids, err := b.OwnerReferences(t.Context(), owner.Id); !errors.As(err, &damaged) {
		t.Fatalf("OwnerReferences with a damaged child: %v, %v", ids, err)
	}
	child.Owner, child.Version = nil, damaged.Version
	if _, err := b.WriteCAS(t.Context(), child); err != nil {
		t.Errorf("WriteCAS over a damaged resource: %v", err)
	}
	if ids, err := b.OwnerReferences(t.Context(), owner.Id); len(ids) > 0 || err != nil {
		t.Errorf("OwnerReferences after the child was replaced by one without an owner: %v, %v", ids, err)
	}
}

// Open waits for a file that another process has open, until its timeout.
func TestFileInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	other, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Open(path, &Options{Timeout: time.Millisecond}); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("Open of a file in use: %v, %v", b, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := opened(t, path, nil).Close(); err != nil {
		t.Error(err)
	}
}

// A program does not change a file that a newer one has written.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := opened(t, path, nil)
	if err := fileAt(path).db.Update(func(tx *bolt.Tx) error { return tx.Bucket(storeBucket).Put([]byte("format"), []byte("2")) }); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, nil); !errors.Is(err, storage.ErrNewerSchema) {
		t.Errorf("Open of a newer format: %v", err)
	}
}

// create=off opens an existing file and creates none.
func TestCreateOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if b, err := storage.Open(t.Context(), fmt.Sprintf("bbolt:%s?create=off", path)); !errors.Is(err, storage.ErrNoStore) {
		t.Errorf("Open of a missing file: %v, %v", b, err)
	}
}
