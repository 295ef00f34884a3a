package sqlite

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// rowsWithHook calls first when it receives the first row.
type rowsWithHook struct {
	driver.Rows
	first func()
	names []string
}

func (r *rowsWithHook) Add(k, _, _ []byte) error {
	if r.names == nil {
		r.first()
	}
	at, err := key.Parse(k)
	r.names = append(r.names, at.Name)
	return err
}

// A list is one snapshot, even if it seeks past mismatches while a resource is written.
func TestListIsOneSnapshot(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	put := func(partition, namespace, name string) {
		t.Helper()
		res := resource(name, 1)
		res.Id.Tenancy.Partition, res.Id.Tenancy.Namespace = partition, namespace
		fixture.Write(t, s, res)
	}
	for partition := range 3 {
		for i := range 2 * maxMismatches {
			put(fmt.Sprint(partition), "other", fmt.Sprint(i))
		}
		put(fmt.Sprint(partition), "shop", fmt.Sprint("shop-", partition))
	}
	f := &driver.Filter{Group: "group", Kind: "Kind", Partition: storage.Wildcard, Namespace: "shop"}
	rows := &rowsWithHook{first: func() { put("2", "shop", "later") }}
	if err := s.handle.List(t.Context(), storage.StrongConsistency, f, rows); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(rows.names, "later") {
		t.Errorf("the list has a resource written after the list began: %v", rows.names)
	}
	if len(rows.names) < 3 {
		t.Errorf("the list is %v, expected at least 3 names", rows.names)
	}
}
