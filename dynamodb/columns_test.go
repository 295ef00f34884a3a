package dynamodb_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/resourcepb"
)

// rawItem is an item of the table.
type rawItem map[string]types.AttributeValue

func (it rawItem) bytes(name string) []byte {
	b, _ := it[name].(*types.AttributeValueMemberB)
	if b == nil {
		return nil
	}
	return b.Value
}

func (it rawItem) set(name string, b []byte) { it[name] = &types.AttributeValueMemberB{Value: b} }

// rawTable changes items behind the adapter.
type rawTable struct {
	t  *testing.T
	db *awsdynamodb.Client
}

// find returns the first item of a class that a function accepts.
func (r rawTable) find(class byte, accept func(rawItem) bool) rawItem {
	r.t.Helper()
	out, err := r.db.Scan(r.t.Context(), &awsdynamodb.ScanInput{TableName: aws.String(dynamofake.Table), ConsistentRead: aws.Bool(true), Limit: aws.Int32(1000)})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, it := range out.Items {
		if bytes.HasPrefix(rawItem(it).bytes("pk"), []byte{'t', 'e', 's', 't', 0, class}) && accept(it) {
			return it
		}
	}
	r.t.Fatalf("the table has no such item of class %q", class)
	return nil
}

func (r rawTable) put(it rawItem) {
	r.t.Helper()
	if _, err := r.db.PutItem(r.t.Context(), &awsdynamodb.PutItemInput{TableName: aws.String(dynamofake.Table), Item: it}); err != nil {
		r.t.Fatal(err)
	}
}

func (r rawTable) remove(it rawItem) {
	r.t.Helper()
	keys := rawItem{"pk": it["pk"], "sk": it["sk"]}
	if _, err := r.db.DeleteItem(r.t.Context(), &awsdynamodb.DeleteItemInput{TableName: aws.String(dynamofake.Table), Key: keys}); err != nil {
		r.t.Fatal(err)
	}
}

// Items beside the resources are damaged in the target, or resources are where no read finds them. Verify reports it, although the lists of
// both stores are equal in most cases.
func TestVerifyFindsDamagedItems(t *testing.T) {
	t.Parallel()
	first := func(rawItem) bool { return true }
	named := func(name string) func(rawItem) bool {
		return func(it rawItem) bool {
			return bytes.HasSuffix(it.bytes("sk"), []byte("\x00"+name)) && it.bytes("u") != nil
		}
	}
	// edgeOf gives an edge another owner, which does not exist.
	edgeOf := func(edge rawItem, owner string) {
		hash := sha256.Sum256([]byte(owner))
		edge.set("pk", append([]byte("test\x00o"), hash[:16]...))
		edge.set("w", []byte(owner))
	}
	for name, damage := range map[string]func(table rawTable){
		"a resource in another bucket": func(table rawTable) {
			it := table.find('r', named("orphan"))
			table.remove(it)
			pk := bytes.Clone(it.bytes("pk"))
			pk[len("test\x00r")] ^= 1
			it.set("pk", pk)
			table.put(it)
		},
		"a type that was not entered": func(table rawTable) { table.remove(table.find('t', first)) },
		"a bucket that was not entered": func(table rawTable) {
			it := table.find('t', first)
			it.bytes("b")[0] &^= 1 << (bucketOf([]byte("default\x00default\x00orphan")) % 8)
			table.put(it)
		},
		"an edge of an absent owner": func(table rawTable) {
			it := table.find('o', first)
			edgeOf(it, "test\x00Box\x00default\x00default\x00absent\x00uid")
			table.put(it)
		},
		"an edge that moved to an absent owner": func(table rawTable) {
			it := table.find('o', first)
			table.remove(it)
			edgeOf(it, "test\x00Box\x00default\x00default\x00absent\x00uid")
			table.put(it)
		},
		"no edge": func(table rawTable) { table.remove(table.find('o', first)) },
		"an edge with another owner's name": func(table rawTable) {
			it := table.find('o', first)
			it.set("w", []byte("another"))
			table.put(it)
		},
		"a version with another owner": func(table rawTable) {
			it := table.find('r', named("child"))
			it.bytes("v")[26] ^= 1
			table.put(it)
		},
		"a version with an owner, of a resource without one": func(table rawTable) { // has no edge, which would show it
			it := table.find('r', named("orphan"))
			it.bytes("v")[26] ^= 1
			table.put(it)
		},
		"a version with another group version": func(table rawTable) {
			it := table.find('r', named("child"))
			it.bytes("v")[42] ^= 1
			table.put(it)
		},
		"a resource that expires": func(table rawTable) {
			it := table.find('r', named("orphan"))
			it["ttl"] = &types.AttributeValueMemberN{Value: "9999999999"}
			table.put(it)
		},
		"a part that expires": func(table rawTable) {
			it := table.find('p', first)
			it["ttl"] = &types.AttributeValueMemberN{Value: "9999999999"}
			table.put(it)
		},
		"a tombstone that does not expire": func(table rawTable) {
			it := table.find('r', func(it rawItem) bool { return it.bytes("u") == nil })
			delete(it, "ttl")
			table.put(it)
		},
		"a resource without a uid": func(table rawTable) {
			it := table.find('r', named("orphan"))
			delete(it, "u")
			table.put(it)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			from, to := fixture.Open(t, "mem://"), handle(t, s, withBuckets(8))
			dynamodb.SetSizes(to, 16)
			large := box("large", make([]byte, 500<<10/16))
			_, _ = rand.Read(large.Data.Value) // never fails
			owner, child := box("owner", nil), box("child", nil)
			child.Owner = owner.Id
			for _, b := range []storage.Backend{from, to} {
				for _, res := range []*resourcepb.Resource{owner, child, box("orphan", nil), large} {
					fixture.Write(t, b, res)
				}
			}
			fixture.Remove(t, to, fixture.Write(t, to, box("deleted", nil)))
			verify := func() *migrate.Report {
				t.Helper()
				r, err := migrate.Verify(t.Context(), from, to, &migrate.VerifyOptions{PageSize: 3})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			if r := verify(); !r.Equal() {
				t.Fatalf("before the damage: %v", r)
			}
			db, _ := s.Clients(t)
			damage(rawTable{t, db})
			if r := verify(); r.Columns == 0 && name != "no edge" || r.Equal() {
				t.Errorf("got %v", r)
			}
		})
	}
}

// A call of CheckColumns reads a bounded number of bytes, whatever its limit: the time of a call is limited, and so is the throughput of a table.
func TestCheckColumnsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	const count, scale = 80, 64
	dynamodb.SetSizes(b, scale)
	for i := range count {
		large := box(fmt.Sprint(i), make([]byte, 400<<10/scale))
		_, _ = rand.Read(large.Data.Value) // never fails
		fixture.Write(t, b, large)
	}
	c, _ := storage.As[driver.ColumnChecker](storage.Backend(b))
	reads := 0
	for after := []byte(nil); ; {
		before := s.Calls("BatchGetItem")
		wrong, next, err := c.CheckColumns(t.Context(), after, 1000)
		if err != nil || len(wrong) > 0 {
			t.Fatalf("%v, %v", wrong, err)
		}
		read := s.Calls("BatchGetItem") - before
		if read > count*2/3 {
			t.Errorf("a call has read the parts of %d of %d large resources", read, count)
		}
		reads += read
		if after = next; after == nil {
			break
		}
	}
	if reads != count {
		t.Errorf("the parts of %d resources were read, expected %d", reads, count)
	}
}
