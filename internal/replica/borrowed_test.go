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

// moment is a borrowed View with what it has to show.
type moment struct {
	view *View[string]
	want map[key.Key]string // versions
}

// A View that is borrowed shows one moment, whatever is written, deleted, borrowed and returned meanwhile, and however it is read.
func TestBorrowedViewsAreMoments(t *testing.T) {
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
			var moments []moment
			for range 3000 {
				k := keys[random.IntN(len(keys))]
				switch n := random.IntN(20); {
				case n < 8:
					written := write(t, r, backend, k, state[k])
					state[k] = written
				case n < 10 && state[k] != "":
					remove(t, r, backend, k, state[k])
					delete(state, k)
				case n < 12 && len(moments) < 6:
					moments = append(moments, moment{r.Borrow(), maps.Clone(state)})
				case n < 13 && len(moments) > 0:
					i := random.IntN(len(moments))
					moments[i].view.Return()
					moments = append(moments[:i], moments[i+1:]...)
				case n < 14 && len(moments) > 0:
					moments[random.IntN(len(moments))].checkAll(t)
				case n < 15:
					(&moment{r.View(), state}).checkAll(t)
				default:
					for _, m := range moments {
						m.check(t, k)
					}
				}
			}
			for _, m := range moments {
				m.checkAll(t)
				m.view.Return()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.views.borrowed) != 0 {
				t.Errorf("%d Views are noted as borrowed, all were returned", len(r.views.borrowed))
			}
		})
	}
}

// check reads one key.
func (m *moment) check(t *testing.T, k key.Key) {
	t.Helper()
	version := ""
	if row := m.view.Get(k); row != nil {
		version = row.Version
	}
	if version != m.want[k] {
		t.Fatalf("%v is at version %q, was at %q in that moment", k, version, m.want[k])
	}
}

// checkAll lists everything.
func (m *moment) checkAll(t *testing.T) {
	t.Helper()
	n := 0
	for row := range m.view.All(storage.UnversionedType{Group: "g", Kind: "K"}) {
		if n++; row.Version != m.want[row.Key] {
			t.Fatalf("%v is at version %q, was at %q in that moment", row.Key, row.Version, m.want[row.Key])
		}
	}
	if n != len(m.want) {
		t.Fatalf("%d rows are listed, there were %d in that moment", n, len(m.want))
	}
}

// write writes a resource as a program that has a replica does, and returns its version.
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

// remove deletes one.
func remove(t *testing.T, r *Replica[string], backend storage.Backend, k key.Key, version string) {
	t.Helper()
	w := r.Begin([]key.Key{k})
	if err := backend.DeleteCAS(t.Context(), k.ID("uid", "v1"), version); err != nil {
		t.Fatal(err)
	}
	w.End(nil, []*resourcepb.Resource{{Id: k.ID("uid", "v1"), Version: version}})
}

// Rows are found where hashes of keys are the same.
func TestHashesThatMeet(t *testing.T) {
	t.Parallel()
	h := newByHash[string]()
	a, b := key.Key{Name: "a"}, key.Key{Name: "b"}
	one, other := &Row[string]{Key: a}, &Row[string]{Key: b}
	h.set(&a, one)
	if row, known := h.get(&b); row != nil || !known {
		t.Errorf("what is not there: %v, known: %v", row, known)
	}
	h.rows[h.hash(&b)] = one // as if the hashes were the same
	h.set(&b, other)
	if row, known := h.get(&b); row != nil || known {
		t.Errorf("of two rows that meet the second one: %v, known: %v", row, known)
	}
	h.set(&b, nil)
	if row, known := h.get(&a); row != one || !known {
		t.Errorf("the first one after the second one was removed: %v, known: %v", row, known)
	}
	h.set(&a, nil)
	if row, known := h.get(&key.Key{Name: "c"}); row != nil || known {
		t.Errorf("anything after two have met: %v, known: %v", row, known)
	}
}
