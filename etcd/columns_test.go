//go:build integration

package etcd_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Owner entries are damaged in the target, some of them under owners that no resource names. Verify reports it, although the resources of
// both stores are equal.
func TestVerifyFindsDamagedEntries(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	client := server.Client(t)
	prefix := server.Prefix(t)
	from, to := fixture.Open(t, "mem://"), open(t, "etcd://"+server.Endpoint+"/"+prefix)
	owner, child, other := service("owner"), service("child"), service("other")
	child.Owner, other.Owner = owner.Id, owner.Id
	for _, b := range []storage.Backend{from, to} {
		for _, res := range []*resourcepb.Resource{owner, child, other, service("orphan")} {
			fixture.Write(t, b, res)
		}
	}
	verify := func() *migrate.Report {
		t.Helper()
		r, err := migrate.Verify(fixture.Context(t), from, to, &migrate.VerifyOptions{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := verify(); !r.Equal() {
		t.Fatalf("before the damage: %v", r)
	}
	section := prefix + "/\x00o"
	entries, err := client.Get(fixture.Context(t), section, clientv3.WithPrefix())
	if err != nil || len(entries.Kvs) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	key, value := string(entries.Kvs[0].Key), string(entries.Kvs[0].Value)
	absent := section + strings.Repeat("\x00", 16) + key[len(section)+16:]
	for name, c := range map[string]struct {
		at, value     string
		columns, refs int
	}{
		"an entry of an absent owner":            {absent, value, 1, 0},
		"an absent owner's entry of no resource": {absent + "-gone", value, 1, 0},
		"an entry of no resource":                {key + "-gone", value, 1, 1},
		"another uid":                            {key, value + "x", 1, 1},
		"no entry":                               {key, "", 0, 1},
	} {
		change := clientv3.OpPut(c.at, c.value)
		if c.value == "" {
			change = clientv3.OpDelete(c.at)
		}
		repair := clientv3.OpDelete(c.at)
		if c.at == key {
			repair = clientv3.OpPut(key, value)
		}
		if _, err := client.Do(fixture.Context(t), change); err != nil {
			t.Fatal(err)
		}
		if r := verify(); r.Columns != c.columns || r.References != c.refs || r.Equal() {
			t.Errorf("%s: got %v", name, r)
		}
		if _, err := client.Do(fixture.Context(t), repair); err != nil {
			t.Fatal(err)
		}
		if r := verify(); !r.Equal() {
			t.Fatalf("%s, repaired: %v", name, r)
		}
	}
}

// A call of CheckColumns reads a bounded number of bytes, whatever its limit: the time of a call is limited.
func TestCheckColumnsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := open(t, env.Etcd(t).StoreURL(t))
	owner := service("owner")
	for i := range 40 {
		child := service(fmt.Sprint("child-", i))
		child.Owner = owner.Id
		child.Data = &anypb.Any{TypeUrl: "example.com/T", Value: make([]byte, 512<<10)}
		fixture.Write(t, b, child)
	}
	c, _ := storage.As[driver.ColumnChecker](storage.Backend(b))
	calls := 0
	for after := []byte(nil); calls == 0 || after != nil; calls++ {
		wrong, next, err := c.CheckColumns(fixture.Context(t), after, 1000)
		if err != nil || len(wrong) > 0 {
			t.Fatalf("%v, %v", wrong, err)
		}
		after = next
	}
	if calls != 3 {
		t.Errorf("%d calls for 40 entries of resources with 0.5 MiB each, expected three of up to 16", calls)
	}
}
