//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// together calls f(0) to f(n-1) concurrently and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// Each write of a batch gets its own result: creates, current and stale updates, other uids, and deletes.
func TestBatchResults(t *testing.T) {
	t.Parallel()
	b := open(t, env.Etcd(t).StoreURL(t))
	const n = 150
	before := make([]*resourcepb.Resource, n)
	together(n, func(i int) {
		if i%5 != 0 {
			before[i], _ = b.WriteCAS(fixture.Context(t), service(fmt.Sprint("s", i)))
		}
	})
	together(n, func(i int) {
		name := fmt.Sprint("s", i)
		if i%5 != 0 && before[i] == nil {
			t.Errorf("%s was not created", name)
			return
		}
		switch i % 5 {
		case 0:
			if out, err := b.WriteCAS(fixture.Context(t), service(name)); err != nil || out.Id.Name != name || out.Version == "" {
				t.Errorf("create %s: %v, %v", name, out, err)
			}
		case 1:
			if out, err := b.WriteCAS(fixture.Context(t), at(before[i], before[i].Version)); err != nil || out.Version == before[i].Version {
				t.Errorf("update %s: %v, %v", name, out, err)
			}
		case 2:
			if _, err := b.WriteCAS(fixture.Context(t), at(before[i], "")); !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("create %s again: %v", name, err)
			}
		case 3:
			other := service(name)
			other.Id.Uid = "another"
			if _, err := b.WriteCAS(fixture.Context(t), other); !errors.Is(err, storage.ErrWrongUid) {
				t.Errorf("%s with another uid: %v", name, err)
			}
		case 4:
			if err := b.DeleteCAS(fixture.Context(t), before[i].Id, before[i].Version); err != nil {
				t.Errorf("delete %s: %v", name, err)
			}
		}
	})
	together(n, func(i int) {
		res := service(fmt.Sprint("s", i))
		got, err := b.Read(fixture.Context(t), storage.StrongConsistency, res.Id)
		switch {
		case i%5 == 4:
			if !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s is still stored: %v", res.Id.Name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", res.Id.Name, err)
		case i%5 >= 2 && got.Version != before[i].Version, i%5 == 1 && got.Version == before[i].Version:
			t.Errorf("%s has version %s, before it had %s", res.Id.Name, got.Version, before[i].Version)
		}
	})
}

// Many callers write one key from the same version, while others write other keys. Exactly one of them succeeds, and none of the calls
// blocks.
func TestHotKey(t *testing.T) {
	t.Parallel()
	b := open(t, env.Etcd(t).StoreURL(t))
	const n = 200
	var succeeded atomic.Int64
	together(n, func(i int) {
		if i%2 == 0 {
			_, err := b.WriteCAS(fixture.Context(t), service("hot"))
			switch {
			case err == nil:
				succeeded.Add(1)
			case !errors.Is(err, storage.ErrCASFailure):
				t.Errorf("hot: %v", err)
			}
			return
		}
		if _, err := b.WriteCAS(fixture.Context(t), service(fmt.Sprint("cool", i))); err != nil {
			t.Errorf("cool: %v", err)
		}
	})
	if succeeded.Load() != 1 {
		t.Errorf("%d creations of one key succeeded, want 1", succeeded.Load())
	}
}

// The concurrent writes exceed the operations and bytes of one request: owned resources with up to three operations each, and large
// resources.
func TestBatchLimits(t *testing.T) {
	t.Parallel()
	b := open(t, env.Etcd(t).StoreURL(t))
	const n = 300
	owned := func(i, owner int) *resourcepb.Resource {
		res := sized(fmt.Sprint("s", i), 64)
		if i%3 == 0 {
			res = sized(fmt.Sprint("s", i), 40<<10)
		}
		res.Owner = service(fmt.Sprint("owner", owner)).Id
		return res
	}
	versions := make([]string, n)
	for owner := range 2 { // the second round changes all owner entries
		together(n, func(i int) {
			res := owned(i, owner)
			res.Version = versions[i]
			out, err := b.WriteCAS(fixture.Context(t), res)
			if err != nil {
				t.Errorf("write %d: %v", i, err)
				return
			}
			versions[i] = out.Version
		})
	}
	for owner, want := range []int{0, n} {
		refs, err := b.OwnerReferences(fixture.Context(t), service(fmt.Sprint("owner", owner)).Id)
		if err != nil || len(refs) != want {
			t.Errorf("owner %d has %d references, %v; want %d", owner, len(refs), err, want)
		}
	}
	largest := make([]*resourcepb.Resource, 6)
	together(len(largest), func(i int) {
		largest[i] = fixture.Write(t, b, sized(fmt.Sprint("large", i), 1<<20-200))
	})
	together(len(largest), func(i int) { fixture.Remove(t, b, largest[i]) })
}

// A transaction may have MaxOps operations of three changes each, with the longest keys.
func TestLargestCommit(t *testing.T) {
	t.Parallel()
	b := open(t, env.Etcd(t).StoreURL(t))
	if b.MaxOps() < 32 {
		t.Fatalf("MaxOps is %d, want 32 or more", b.MaxOps())
	}
	long := func(first string, n int) string { return first + strings.Repeat("k", n-len(first)) }
	ops := make([]storage.Op, b.MaxOps())
	resource := func(i, owner int) *resourcepb.Resource {
		res := sized(long(fmt.Sprint(i, "-"), 255), 20<<10)
		res.Id.Uid = long("u", 255)
		res.Id.Tenancy = &resourcepb.Tenancy{Partition: long("p", 255), Namespace: long("n", 255)}
		res.Id.Type = &resourcepb.Type{Group: long("g", 255), GroupVersion: long("v", 1000), Kind: long("k", 255)}
		res.Owner = service(fmt.Sprint("owner", owner)).Id
		return res
	}
	for owner := range 2 {
		for i := range ops {
			res := resource(i, owner)
			if ops[i].Write != nil {
				res.Version = ops[i].Write.Version
			}
			ops[i] = storage.Op{Write: res}
		}
		out, err := b.Commit(fixture.Context(t), ops)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			ops[i].Write.Version = out[i].Version
		}
	}
	refs, err := b.OwnerReferences(fixture.Context(t), service("owner1").Id)
	if err != nil || len(refs) != len(ops) {
		t.Errorf("%d references, %v; want %d", len(refs), err, len(ops))
	}
}

// If the server accepts less than max-request-bytes, only the writes that are too large for it fail.
func TestBatchWithTooLargeWrite(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t, "--max-request-bytes=65536")
	b := open(t, server.StoreURL(t))
	together(100, func(i int) {
		if i%10 == 0 {
			// The server rejects a request that exceeds its limit by more than 512 KiB before it decodes it.
			_, err := b.WriteCAS(fixture.Context(t), sized(fmt.Sprint("s", i), 100<<10+i*6000))
			if err == nil || errors.Is(err, storage.ErrInconsistent) || errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("a write that is too large for the server: %v, want a rejection", err)
			}
			return
		}
		if _, err := b.WriteCAS(fixture.Context(t), service(fmt.Sprint("s", i))); err != nil {
			t.Errorf("a small write in the same batch: %v", err)
		}
	})
}
