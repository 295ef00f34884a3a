package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/ncruces/go-sqlite3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The columns that a database derives from resources are damaged in the target: Verify reports it, although all resources are equal.
func TestVerifyFindsWrongColumns(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"another uid":                         "UPDATE resources SET uid = 'another' WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
		"another change that the log lacks":   "UPDATE resources SET seq = 0 WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
		"another creation":                    "UPDATE resources SET created = created + 1 WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
		"another number of writes":            "UPDATE resources SET writes = writes + 1 WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
		"another change":                      "UPDATE resources SET seq = (SELECT max(seq) FROM log WHERE seq <> resources.seq) WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
		"no owner":                            "UPDATE resources SET owner = NULL WHERE instr(data, CAST('child-1' AS BLOB)) > 0",
		"another group version":               "UPDATE resources SET group_version = 'v9' WHERE instr(data, CAST('child-1' AS BLOB)) > 0",
		"a reference to a childless resource": "UPDATE resources SET owner = (SELECT CAST(key || x'00' || uid AS BLOB) FROM resources WHERE instr(data, CAST('child-0' AS BLOB)) > 0) WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
		"a former child":                      "UPDATE resources SET owner = (SELECT owner FROM resources WHERE owner IS NOT NULL) WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			from, to := openFile(t, filepath.Join(folder, "from.db")), openFile(t, filepath.Join(folder, "to.db"))
			owner := small("owner", "1")
			all := []*resourcepb.Resource{owner, small("orphan", "1")}
			for i := range 3 {
				child := small(fmt.Sprint("child-", i), "1")
				child.Owner = owner.Id
				all = append(all, child)
			}
			fill(t, from.Backend, all)
			if _, err := Run(limited(t), from.Backend, to.Backend, quick(Options{})); err != nil {
				t.Fatal(err)
			}
			if r, err := Verify(limited(t), from.Backend, to.Backend, nil); err != nil || !r.Equal() {
				t.Fatalf("before the damage: %v, %v", r, err)
			}
			to.close()
			db, err := sqlite3.Open(to.path)
			if err == nil {
				err = db.Exec(damage)
			}
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			to.open()
			var found []Difference
			r, err := Verify(limited(t), from.Backend, to.Backend, &VerifyOptions{OnDifference: func(d Difference) error {
				found = append(found, d)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			kinds := []Kind{Reference, Column}
			if strings.HasPrefix(name, "another ") && name != "another group version" {
				kinds = []Kind{Column} // no owner reference is affected
			}
			for i, kind := range kinds {
				if len(found) != len(kinds) || found[i].Kind != kind || found[i].Source != nil || found[i].Target == nil {
					t.Fatalf("got %v with %v, expected %v in the target", r, found, kinds)
				}
			}
			if r.Equal() || r.Columns != 1 || r.References != len(kinds)-1 {
				t.Errorf("got %v", r)
			}
			if r, err := Verify(limited(t), from.Backend, to.Backend, &VerifyOptions{SkipReferences: true}); err != nil || !r.Equal() {
				t.Errorf("without references: %v, %v", r, err)
			}
		})
	}
}

// The children that are still to be checked are in memory without their payloads.
func TestReferencesKeepNoPayloads(t *testing.T) {
	t.Parallel()
	child := small("child", "1")
	child.Owner = small("owner", "1").Id
	stored, err := entryOf(child)
	if err != nil {
		t.Fatal(err)
	}
	r := newReferences(nil, nil)
	payload := func() weak.Pointer[anypb.Any] {
		e := entry{Row: stored.Row}
		if err := r.add(&e); err != nil {
			t.Fatal(err)
		}
		return weak.Make(e.res.Data)
	}()
	for range 10 {
		runtime.GC()
	}
	if payload.Value() != nil {
		t.Error("the payload of a child is still in memory")
	}
	if len(r.families) != 1 {
		t.Errorf("%d owners, expected 1", len(r.families))
	}
}

// countedReferences counts calls, and omits the reference of one child.
type countedReferences struct {
	storage.Backend
	asked, read atomic.Int64
	omit        string
}

func (c *countedReferences) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	c.asked.Add(1)
	refs, err := c.Backend.OwnerReferences(ctx, id)
	return slices.DeleteFunc(refs, func(ref *resourcepb.ID) bool { return ref.Name == c.omit }), err
}

func (c *countedReferences) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	c.read.Add(1)
	return c.Backend.Read(ctx, consistency, id)
}

// The check asks once for the references to each resource, however many children an owner has, and reads no resource without a difference. With
// many owners it makes several passes.
func TestReferencesAreReadOnce(t *testing.T) {
	t.Parallel()
	const chain, children = 100, 300
	b := inmem.New(nil)
	t.Cleanup(func() { _ = b.Close() })
	all := []*resourcepb.Resource{small("owner", "1")}
	for i := range chain {
		link := small(fmt.Sprintf("link-%03d", i), "1")
		link.Owner = all[i].Id
		all = append(all, link)
	}
	for i := range children {
		child := small(fmt.Sprintf("child-%03d", i), "1")
		child.Owner = all[0].Id
		all = append(all, child)
	}
	fill(t, b, all)
	for name, test := range map[string]struct {
		limit int
		omit  string
	}{
		"one pass":     {maxOwners, ""},
		"many passes":  {7, ""},
		"a difference": {7, "child-150"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &countedReferences{Backend: b, omit: test.omit}
			r := newReferences(store, newMigration(b, b, &Options{}).listSource)
			r.limit = test.limit
			err := r.visit(limited(t), r.add)
			if err == nil {
				err = r.check(limited(t))
			}
			if err != nil {
				t.Fatal(err)
			}
			if test.omit != "" {
				if len(r.wrong) != 1 || r.wrong[0].Name != test.omit {
					t.Errorf("got %v, expected %s", r.wrong, test.omit)
				}
				return
			}
			if len(r.wrong) > 0 || store.asked.Load() != int64(len(all)) || store.read.Load() > 0 {
				t.Errorf("%v; asked for %d references and read %d resources, expected %d and none", r.wrong, store.asked.Load(), store.read.Load(), len(all))
			}
		})
	}
}

// columnPages is a store that checks its columns in three pages.
type columnPages struct {
	storage.Backend
	calls int
}

func (c *columnPages) As(target any) bool {
	p, ok := target.(*driver.ColumnChecker)
	if ok {
		*p = c
	}
	return ok
}

func (c *columnPages) CheckColumns(_ context.Context, after []byte, _ int) (wrong []driver.Key, next []byte, err error) {
	if want := fmt.Sprint(c.calls); c.calls > 0 && string(after) != want || c.calls > 2 {
		return nil, nil, fmt.Errorf("page %d after %q", c.calls, after)
	}
	if c.calls++; c.calls < 3 {
		next = []byte(fmt.Sprint(c.calls))
	}
	return make([]driver.Key, 1), next, nil
}

// All pages of a check of columns are read.
func TestPagesOfColumns(t *testing.T) {
	t.Parallel()
	m := newMigration(nil, nil, nil)
	if wrong, err := m.checkColumns(limited(t), &columnPages{}); err != nil || len(wrong) != 3 {
		t.Errorf("%d wrong resources in 3 pages, %v", len(wrong), err)
	}
}

// late is a store that returns owner references only from its third answer on.
type late struct {
	storage.Backend
	asked int
	after int
}

func (l *late) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	if l.asked++; l.asked <= l.after {
		return nil, nil
	}
	return l.Backend.OwnerReferences(ctx, id)
}

// A missing reference counts if two reads miss it. The wrong references are in the order of keys.
func TestMissingReferences(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	owner := small("owner", "1")
	all := []*resourcepb.Resource{owner}
	f := &family{owner: owner.Id}
	var names []string
	for i := range 20 {
		child := small(fmt.Sprintf("child-%02d", i), "1")
		child.Owner = owner.Id
		all = append(all, child)
		names = append(names, child.Id.Name)
	}
	fill(t, b, all)
	for after, want := range map[int]int{0: 0, 1: 0, 2: 20} {
		store := &late{Backend: b, after: after}
		r := newReferences(store, newMigration(b, b, nil).listSource)
		if err := r.compareSuspects(limited(t), []*resourcepb.ID{f.owner}); err != nil || len(r.wrong) != want {
			t.Errorf("missed by %d reads: %d wrong references, expected %d; %v", after, len(r.wrong), want, err)
		}
	}
	store := &countedReferences{Backend: b}
	r := newReferences(&missing{store}, newMigration(b, b, nil).listSource)
	if err := errors.Join(r.visit(limited(t), r.add), r.check(limited(t))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, id := range r.wrong {
		got = append(got, id.Name)
	}
	if !slices.Equal(got, names) {
		t.Errorf("wrong references %v", got)
	}
}

// missing is a store without owner references.
type missing struct{ *countedReferences }

func (missing) OwnerReferences(context.Context, *resourcepb.ID) ([]*resourcepb.ID, error) {
	return nil, nil
}

// A pass keeps as many owners as the limit, and leaves the rest to later passes. Its range includes both ends.
func TestRangeOfAPass(t *testing.T) {
	t.Parallel()
	r := newReferences(nil, nil)
	r.limit = 2
	for i, e := range entries(t, 8) {
		e.res.Owner = small(fmt.Sprint("owner-", i), "").Id
		if err := r.add(e); err != nil {
			t.Fatal(err)
		}
		if whole := r.to == ^uint64(0); len(r.families) > 2 || whole != (i < 2) {
			t.Errorf("%d owners: %d in memory, the whole range %v", i+1, len(r.families), whole)
		}
	}
	hash := ownerHash{7: 5}
	for _, c := range []struct {
		from, to uint64
		want     bool
	}{{5, 5, true}, {5, 6, true}, {4, 5, true}, {6, 9, false}, {1, 4, false}} {
		if r := (&references{from: c.from, to: c.to}); r.inPass(hash) != c.want {
			t.Errorf("5 in %d to %d: %v", c.from, c.to, !c.want)
		}
	}
}
