package bench

import (
	"fmt"
	"testing"

	memdb "github.com/hashicorp/go-memdb"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// BenchmarkGrowthMem grows a store in memory beside go-memdb, with an additional index of owners.
func BenchmarkGrowthMem(b *testing.B) { once(b, func() { growMem(b) }) }

func growMem(b *testing.B) {
	open := [2]func() growing{
		func() growing {
			return &growingMemDB{db: must(memdb.NewMemDB(memDBSchema())), things: &growingStore{data: payload(500)}}
		},
		func() growing { return &growingStore{backend: inmem.New(nil), data: payload(500)} },
	}
	raw, ours := open[0](), open[1]()
	b.Cleanup(func() { ours.close() })
	(&growths{
		name: "memory", shown: "Memory", raw: "go-memdb", most: 1_000_000,
		notes:  []string{"Memory is the memory of one resource."},
		sides:  [2]growing{raw, ours},
		memory: perResource(open),
	}).run(b)
}

// ownedRow is a row of go-memdb with an owner.
type ownedRow struct {
	Name, Owner string
	Resource    *resourcepb.Resource
}

func memDBSchema() *memdb.DBSchema {
	return &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{"resource": {Name: "resource", Indexes: map[string]*memdb.IndexSchema{
		"id":    {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "Name"}},
		"owner": {Name: "owner", AllowMissing: true, Indexer: &memdb.StringFieldIndex{Field: "Owner"}},
	}}}}
}

// growingMemDB clones its input and output, as its users do.
type growingMemDB struct {
	db     *memdb.MemDB
	things *growingStore // makes the resources; it has no backend
}

func (m *growingMemDB) insert(tx *memdb.Txn, i int) error {
	res := m.things.thing(i)
	res.Data.Value = append([]byte(nil), res.Data.Value...)
	return tx.Insert("resource", &ownedRow{res.Id.Name, res.GetOwner().GetName(), res})
}

func (m *growingMemDB) add(from, to int, done func(n int)) error {
	return inBatches(from, to, 1000, 1, done, func(from, to int) error {
		tx := m.db.Txn(true)
		defer tx.Abort()
		for i := from; i < to; i++ {
			if err := m.insert(tx, i); err != nil {
				return err
			}
		}
		tx.Commit()
		return nil
	})
}

func (m *growingMemDB) settle() error { return nil }

func (m *growingMemDB) read(i int) error {
	found, err := m.db.Txn(false).First("resource", "id", nameOf(i))
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("go-memdb has no row %s", nameOf(i))
	}
	_ = proto.Clone(found.(*ownedRow).Resource)
	return nil
}

func (m *growingMemDB) write(i int) error {
	tx := m.db.Txn(true)
	defer tx.Abort()
	if err := m.insert(tx, i); err != nil {
		return err
	}
	tx.Commit()
	return nil
}

// collect clones at most limit items of an index, or all if limit is 0. It returns their number and the iterator.
func (m *growingMemDB) collect(limit int, index string, args ...any) (int, memdb.ResultIterator, error) {
	it, err := m.db.Txn(false).Get("resource", index, args...)
	if err != nil {
		return 0, nil, err
	}
	var list []*resourcepb.Resource
	for r := it.Next(); r != nil; r = it.Next() {
		if list = append(list, proto.CloneOf(r.(*ownedRow).Resource)); len(list) == limit {
			break
		}
	}
	return len(list), it, nil
}

func (m *growingMemDB) list(prefix string) (int, error) {
	n, _, err := m.collect(0, "id_prefix", prefix)
	return n, err
}

func (m *growingMemDB) watch(prefix string) (int, error) {
	n, it, err := m.collect(0, "id_prefix", prefix)
	if err == nil {
		_ = it.WatchCh()
	}
	return n, err
}

func (m *growingMemDB) owned(i int) (int, error) {
	n, _, err := m.collect(0, "owner", nameOf(i))
	return n, err
}

func (m *growingMemDB) first(limit int) (int, error) {
	n, _, err := m.collect(limit, "id_prefix", "")
	return n, err
}

func (m *growingMemDB) walk(int) (int, error) { return m.list("") }

func (m *growingMemDB) close() error { return nil }
