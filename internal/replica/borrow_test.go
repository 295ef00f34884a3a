package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// viewState is a borrowed View with the expected versions.
type viewState struct {
	view *View[string]
	want map[key.Key]string // versions
}

// A borrowed View keeps its state, whatever is written, deleted, borrowed and returned meanwhile, and however it is read.
func TestBorrowedViewsDoNotChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			backend := inmem.New(nil)
			t.Cleanup(func() { backend.Close() })
			r, err := Open(t.Context(), backend, Options[string]{Decode: func(res *resourcepb.Resource) string { return res.GetVersion() }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			keys := make([]key.Key, 100)
			for i := range keys {
				keys[i] = key.Key{Group: "g", Kind: "K", Partition: "p", Namespace: "n", Name: fmt.Sprintf("%03d", i)}
			}
			state := map[key.Key]string{}
			var viewStates []viewState
			for range 3000 {
				k := keys[random.IntN(len(keys))]
				switch n := random.IntN(20); {
				case n < 8:
					written := write(t, r, backend, k, state[k])
					state[k] = written
				case n < 10 && state[k] != "":
					remove(t, r, backend, k, state[k])
					delete(state, k)
				case n < 12 && len(viewStates) < 6:
					viewStates = append(viewStates, viewState{r.Borrow(), maps.Clone(state)})
				case n < 13 && len(viewStates) > 0:
					i := random.IntN(len(viewStates))
					viewStates[i].view.Return()
					viewStates = append(viewStates[:i], viewStates[i+1:]...)
				case n < 14 && len(viewStates) > 0:
					viewStates[random.IntN(len(viewStates))].checkAll(t)
				case n < 15:
					(&viewState{r.View(), state}).checkAll(t)
				default:
					for _, m := range viewStates {
						m.check(t, k)
					}
				}
			}
			for _, m := range viewStates {
				m.checkAll(t)
				m.view.Return()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.views.borrowedViews) != 0 {
				t.Errorf("%d Views are tracked as borrowed, but all were returned", len(r.views.borrowedViews))
			}
		})
	}
}

// check reads one key.
func (m *viewState) check(t *testing.T, k key.Key) {
	t.Helper()
	version := ""
	if row := m.view.Get(k); row != nil {
		version = row.Version
	}
	if version != m.want[k] {
		t.Fatalf("%v has version %q in the View, expected %q", k, version, m.want[k])
	}
}

// checkAll reads all rows.
func (m *viewState) checkAll(t *testing.T) {
	t.Helper()
	n := 0
	for row := range m.view.All(storage.UnversionedType{Group: "g", Kind: "K"}) {
		if n++; row.Version != m.want[row.Key] {
			t.Fatalf("%v has version %q in the View, expected %q", row.Key, row.Version, m.want[row.Key])
		}
	}
	if n != len(m.want) {
		t.Fatalf("the View has %d rows, expected %d", n, len(m.want))
	}
}

// write writes a resource through a replica and returns its version.
func write(t *testing.T, r *Replica[string], backend storage.Backend, k key.Key, version string) string {
	t.Helper()
	w := r.Begin([]key.Key{k})
	res, err := backend.WriteCAS(t.Context(), &resourcepb.Resource{Id: k.ID("uid", "v1"), Version: version})
	if err != nil {
		t.Fatal(err)
	}
	w.End([]*resourcepb.Resource{res}, nil)
	return res.GetVersion()
}

// remove deletes a resource through a replica.
func remove(t *testing.T, r *Replica[string], backend storage.Backend, k key.Key, version string) {
	t.Helper()
	w := r.Begin([]key.Key{k})
	if err := backend.DeleteCAS(t.Context(), k.ID("uid", "v1"), version); err != nil {
		t.Fatal(err)
	}
	w.End(nil, []*resourcepb.Resource{{Id: k.ID("uid", "v1"), Version: version}})
}

// Rows are found despite hash collisions of their keys.
func TestHashCollisions(t *testing.T) {
	t.Parallel()
	h := newByHash[string]()
	a, b := key.Key{Name: "a"}, key.Key{Name: "b"}
	one, other := &Row[string]{Key: a}, &Row[string]{Key: b}
	h.set(&a, one)
	if row, known := h.get(&b); row != nil || !known {
		t.Errorf("an absent key: %v, known: %v", row, known)
	}
	h.rows[h.hash(&b)] = one // simulates equal hashes
	h.set(&b, other)
	if row, known := h.get(&b); row != nil || known {
		t.Errorf("the second row of a collision: %v, known: %v", row, known)
	}
	h.set(&b, nil)
	if row, known := h.get(&a); row != one || !known {
		t.Errorf("the first row after the second one was removed: %v, known: %v", row, known)
	}
	h.set(&a, nil)
	if row, known := h.get(&key.Key{Name: "c"}); row != nil || known {
		t.Errorf("an absent key after a collision: %v, known: %v", row, known)
	}
}
