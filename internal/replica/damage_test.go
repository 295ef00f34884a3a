package replica_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// damage overwrites a stored resource with bytes that are no resource.
func damage(t *testing.T, path string, id *resourcepb.ID) {
	t.Helper()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	k := sqlite3.Quote(key.Of(id).Bytes())
	if err := db.Exec(`
		BEGIN IMMEDIATE;
		INSERT INTO log (seq, tag, written, key, data) SELECT max(seq) + 1, 4711, max(written), ` + k + `, x'ff' FROM log;
		UPDATE resources SET (seq, tag) = (SELECT max(seq), 4711 FROM log), data = x'ff' WHERE key = ` + k + `;
		COMMIT`); err != nil {
		t.Fatal(err)
	}
}

// listCounter counts the watches that begin with a list.
type listCounter struct {
	storage.Backend
	lists int
}

func (b *listCounter) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	b.lists++
	return b.Backend.WatchList(ctx, typ, tenancy, prefix)
}

// A resource of a type that is not copied is damaged, before the copy is opened and while it is fed. The copy continues. A damaged resource of a copied
// type is reported.
func TestDamageOfOtherTypes(t *testing.T) {
	t.Parallel()
	of := func(group, kind, name string) *resourcepb.Resource {
		res := fixture.Resource(name, "1")
		res.Id.Type.Group, res.Id.Type.Kind = group, kind
		return res
	}
	for name, types := range map[string][]storage.UnversionedType{
		"one group":  {{Group: "a", Kind: "One"}, {Group: "a", Kind: "Two"}},
		"two groups": {{Group: "a", Kind: "One"}, {Group: "c", Kind: "Two"}},
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		b := &listCounter{Backend: fixture.Open(t, "sqlite:"+path)}
		earlier := fixture.Write(t, b, of("a", "Other", "earlier"))
		later := fixture.Write(t, b, of("a", "Other", "later"))
		one := fixture.Write(t, b, of(types[0].Group, types[0].Kind, "one"))
		two := fixture.Write(t, b, of(types[1].Group, types[1].Kind, "two"))
		damage(t, path, earlier.Id)
		r, err := replica.Open(fixture.Context(t), b, replica.Options[string]{
			Types: types, Decode: func(res *resourcepb.Resource) string { return res.GetVersion() },
		})
		if err != nil {
			t.Errorf("%s: open: %v", name, err)
			continue
		}
		defer r.Close()
		damage(t, path, later.Id)
		for range 3 {
			two = fixture.Write(t, b, two)
		}
		if err := r.Barrier(fixture.Context(t)); err != nil {
			t.Errorf("%s: the barrier: %v", name, err)
		}
		for _, res := range []*resourcepb.Resource{one, two} {
			if row := r.Get(key.Of(res.Id)); row == nil || row.Version != res.Version {
				t.Errorf("%s: the copy has %v, expected version %s", name, row, res.Version)
			}
		}
		if b.lists != 1 || r.Health() != nil {
			t.Errorf("%s: %d lists, health %v, expected one list", name, b.lists, r.Health())
		}
		damage(t, path, one.Id)
		fixture.Eventually(t, "the damage of a copied type is reported", func() bool {
			damaged := (*storage.DamagedError)(nil)
			return errors.As(r.Health(), &damaged) && damaged.ID.GetName() == "one"
		})
	}
}
