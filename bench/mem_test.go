package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	memdb "github.com/hashicorp/go-memdb"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// row is a row of go-memdb: the resource under its name.
type row struct {
	Name     string
	Resource *resourcepb.Resource
}

// BenchmarkMem compares package inmem with go-memdb on the same resources. Both sides clone input and output; users of go-memdb call
// proto.Clone themselves.
func BenchmarkMem(b *testing.B) { once(b, func() { mem(b) }) }

func mem(b *testing.B) {
	n := scaled(100_000)
	ctx := context.Background()
	db := must(memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{"resource": {Name: "resource",
		Indexes: map[string]*memdb.IndexSchema{"id": {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "Name"}}}}}}))
	backend := inmem.New(nil)
	b.Cleanup(func() { backend.Close() })
	stored := make([]atomic.Pointer[resourcepb.Resource], n)
	tx := db.Txn(true)
	for i := range n {
		// There are 100 prefixes, so a list of one has a hundredth of the names: 1,000.
		res := resource(fmt.Sprintf("%02d-%06d", i%100, i), 500)
		if err := tx.Insert("resource", &row{res.Id.Name, res}); err != nil {
			b.Fatal(err)
		}
		stored[i].Store(must(backend.WriteCAS(ctx, res)))
	}
	tx.Commit()
	at := func(caller, i int) int { return (i*7919 + caller) % n }
	name := func(i int) string { return fmt.Sprintf("%02d-%06d", i%100, i) }

	compare(b, "mem", "read", []int{1, 2}, side{"go-memdb", func(caller, i int) error {
		found, err := db.Txn(false).First("resource", "id", name(at(caller, i)))
		if err == nil {
			_ = proto.Clone(found.(*row).Resource)
		}
		return err
	}}, side{"ashlar", func(caller, i int) error {
		_, err := backend.Read(ctx, storage.EventualConsistency, stored[at(caller, i)].Load().Id)
		return err
	}})

	compare(b, "mem", "list-1000", []int{1}, side{"go-memdb", func(_, i int) error {
		it, err := db.Txn(false).Get("resource", "id_prefix", fmt.Sprintf("%02d-", i%100))
		if err != nil {
			return err
		}
		list := make([]*resourcepb.Resource, 0, 1000)
		for r := it.Next(); r != nil; r = it.Next() {
			list = append(list, proto.CloneOf(r.(*row).Resource))
		}
		return checkLen(list, n/100)
	}}, side{"ashlar", func(_, i int) error {
		list, err := backend.List(ctx, storage.EventualConsistency, everything, anywhere, fmt.Sprintf("%02d-", i%100))
		if err != nil {
			return err
		}
		return checkLen(list, n/100)
	}})

	follow(b, backend)
	compare(b, "mem", "write", []int{1}, side{"go-memdb", func(caller, i int) error {
		res := proto.CloneOf(stored[at(caller, i)].Load())
		tx := db.Txn(true)
		defer tx.Abort()
		if err := tx.Insert("resource", &row{res.Id.Name, res}); err != nil {
			return err
		}
		tx.Commit()
		return nil
	}}, side{"ashlar", func(caller, i int) error {
		at := &stored[at(caller, i)]
		res, err := backend.WriteCAS(ctx, at.Load())
		if err == nil {
			at.Store(res)
		}
		return err
	}})
}

func checkLen(list []*resourcepb.Resource, n int) error {
	if len(list) != n {
		return fmt.Errorf("listed %d, expected %d", len(list), n)
	}
	return nil
}
