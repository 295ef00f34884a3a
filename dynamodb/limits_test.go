package dynamodb_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A page of a sparse filter does not need a query of a bucket for every few items.
func TestSparsePage(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetQueryPage(1000)
	b := handle(t, s, withBuckets(1))
	for i := range 200 {
		res := box(fmt.Sprintf("box-%03d", i), nil)
		res.Id.Tenancy = &resourcepb.Tenancy{Partition: fmt.Sprintf("p%03d", i), Namespace: "n"}
		if i == 150 {
			res.Id.Tenancy.Namespace = "wanted"
		}
		fixture.Write(t, b, res)
	}
	before := s.Calls("Query")
	var found []string
	for token := ""; ; {
		page, err := b.ListPage(t.Context(), boxType, &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: "wanted"}, "", storage.ListOptions{Limit: 1, Continue: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range page.Resources {
			found = append(found, res.GetId().GetName())
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	if !slices.Equal(found, []string{"box-150"}) {
		t.Errorf("found %v", found)
	}
	if n := s.Calls("Query") - before; n > 8 {
		t.Errorf("%d queries for one resource among 200", n)
	}
}

// crowds fills a store with some partitions, each with many resources in one namespace and two in another, "wanted".
func crowds(t *testing.T, b *dynamodb.Backend, partitions, crowd int) {
	t.Helper()
	var writers sync.WaitGroup
	for p := range partitions {
		writers.Go(func() {
			for i := range crowd + 2 {
				res := box(fmt.Sprintf("box-%d-%03d", p, i), nil)
				res.Id.Tenancy = &resourcepb.Tenancy{Partition: fmt.Sprint("p", p), Namespace: "crowd"}
				if i < 2 {
					res.Id.Tenancy.Namespace = "wanted"
				}
				if _, err := b.WriteCAS(t.Context(), res); err != nil {
					t.Errorf("write: %v", err)
				}
			}
		})
	}
	writers.Wait()
}

// A list skips resources that do not match, however many there are.
func TestListSkips(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetQueryPage(20)
	b := handle(t, s, withBuckets(1))
	crowds(t, b, 4, 200)
	for _, consistency := range []storage.ReadConsistency{storage.EventualConsistency, storage.StrongConsistency} {
		before := s.Calls("Query")
		list, err := b.List(t.Context(), consistency, boxType, &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: "wanted"}, "")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, res := range list {
			names = append(names, res.GetId().GetName())
		}
		if want := []string{"box-0-000", "box-0-001", "box-1-000", "box-1-001", "box-2-000", "box-2-001", "box-3-000", "box-3-001"}; !slices.Equal(names, want) {
			t.Errorf("listed %v, expected %v", names, want)
		}
		if n := s.Calls("Query") - before; n > 4*2+2 {
			t.Errorf("%d queries over 4 partitions, each with 200 resources to skip, expected 2 for each", n)
		}
	}
}

// A page ends after a number of examined items, whether they match or not, and the next page continues after them.
func TestPagesOfWhatDoesNotMatch(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetQueryPage(10)
	b := handle(t, s, withBuckets(1))
	other := handle(t, s, func(o *dynamodb.Options) { o.Prefix = "buckets" })
	crowds(t, b, 2, 100)
	crowds(t, other, 2, 100)
	for _, f := range []struct {
		namespace, prefix string
		want              int
	}{{storage.Wildcard, "box-1-09", 10}, {storage.Wildcard, "box-", 204}, {storage.Wildcard, "none", 0}, {"wanted", "", 4}} {
		for b, c := range map[*dynamodb.Backend]struct{ limit, items, queries int }{b: {3, 40, 8}, other: {50, 150, 16 + 32}} {
			dynamodb.SetPageItems(b, c.items)
			found := 0
			for token, pages := "", 0; ; pages++ {
				before := s.Calls("Query")
				tenancy := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: f.namespace}
				page, err := b.ListPage(t.Context(), boxType, tenancy, f.prefix, storage.ListOptions{Limit: c.limit, Continue: token})
				if err != nil {
					t.Fatal(err)
				}
				if found += len(page.Resources); len(page.Resources) > c.limit {
					t.Errorf("a page has %d resources", len(page.Resources))
				}
				if n := s.Calls("Query") - before; n > c.queries {
					t.Errorf("page %d of %+v took %d queries, expected %d at most", pages, f, n, c.queries)
				}
				if token = page.Continue; token == "" {
					break
				}
			}
			if found != f.want {
				t.Errorf("found %d of %+v", found, f)
			}
		}
	}
}

// A paged listing does not read the stream, so it uses none of the stream's reader slots, and it writes nothing. Its cursor returns
// all later changes.
func TestPagesReadNoStream(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetShards(3)
	s.SetReaders(2)
	third := handle(t, s)
	fixture.Write(t, third, box("a", nil))
	before := s.Calls("PutItem")
	page, err := third.ListPage(t.Context(), boxType, tenancy, "", storage.ListOptions{})
	if err != nil || len(page.Resources) != 1 {
		t.Fatalf("%d resources: %v", len(page.Resources), err)
	}
	if n := s.Calls("PutItem") - before; n != 0 {
		t.Errorf("%d items were written by a listing", n)
	}
	if n := s.Calls("GetRecords"); n != 0 {
		t.Errorf("a listing read the records of the stream %d times", n)
	}
	b := handle(t, s)
	for _, other := range []*dynamodb.Backend{b, handle(t, s)} {
		afterSnapshot(t, watch(t, other))
	}
	// Pages continue if all reader slots are in use.
	if _, err := third.ListPage(t.Context(), boxType, tenancy, "", storage.ListOptions{}); err != nil {
		t.Error(err)
	}
	s.Split(false)
	s.Roll()
	stored := fixture.Write(t, b, box("b", nil))
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := b.WatchFrom(t.Context(), boxType, tenancy, "", page.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for {
		if _, version, _ := seen(fixture.Next(t, w)); version == stored.GetVersion() {
			break
		}
	}
}

// If the creator of a table died before it enabled the time-to-live, the next opening enables it.
func TestUnfinishedTable(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetTimeToLive(false)
	if _, err := newHandle(t, s, func(o *dynamodb.Options) { o.NoCreate = true }); err == nil {
		t.Fatal("opened a table that does not exist")
	}
	if s.TimeToLive() {
		t.Error("changed a table although creation is off")
	}
	handle(t, s)
	if !s.TimeToLive() {
		t.Error("the time-to-live is disabled")
	}
	denied := dynamofake.New(t)
	denied.SetFaults(func(op string) dynamofake.Fault {
		if strings.HasSuffix(op, "TimeToLive") {
			return dynamofake.Fault{Code: "AccessDeniedException"}
		}
		return dynamofake.Fault{}
	})
	fixture.Write(t, handle(t, denied), box("a", nil))
}

// A group version may be as long as a resource, even if the resource has an owner.
func TestLongGroupVersion(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	owner, other := fixture.Write(t, b, box("owner", nil)), fixture.Write(t, b, box("other", nil))
	child := box("child", nil)
	child.Id.Type.GroupVersion = strings.Repeat("long ", 100<<10)
	child.Owner = owner.GetId()
	child = fixture.Write(t, b, child)
	references := func(id *resourcepb.ID) []*resourcepb.ID {
		t.Helper()
		ids, err := b.OwnerReferences(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if ids := references(owner.GetId()); len(ids) != 1 || ids[0].GetType().GetGroupVersion() != child.GetId().GetType().GetGroupVersion() || ids[0].GetUid() != child.GetId().GetUid() {
		t.Fatalf("%d references, or wrong ones", len(ids))
	}
	child.Owner = other.GetId()
	child = fixture.Write(t, b, child)
	if a, b := references(owner.GetId()), references(other.GetId()); len(a) != 0 || len(b) != 1 {
		t.Errorf("%d and %d references, expected 0 and 1", len(a), len(b))
	}
	fixture.Remove(t, b, child)
	if ids := references(other.GetId()); len(ids) != 0 {
		t.Errorf("%d references to a deleted resource", len(ids))
	}
}

// A transaction has thirty-two operations on large resources. All succeed, or the error names the first that failed, also while a
// fence is announced.
func TestCommitOnLargeResources(t *testing.T) {
	t.Parallel()
	const scale = 16
	_, b := scaled(t, scale)
	var large []*resourcepb.Resource
	for i := range 32 {
		large = append(large, fixture.Write(t, b, box(fmt.Sprintf("big-%02d", i), content(i, 370<<10/scale, false))))
	}
	ops := func(version func(*resourcepb.Resource) string) (checks, deletes []storage.Op) {
		for _, res := range large {
			checks = append(checks, storage.Op{Check: res.GetId(), Version: version(res)})
			deletes = append(deletes, storage.Op{Delete: res.GetId(), Version: version(res)})
		}
		return checks, deletes
	}
	own := func(res *resourcepb.Resource) string { return res.GetVersion() }
	old := large[0].GetVersion()
	checks, deletes := ops(func(*resourcepb.Resource) string { return old })
	for what, ops := range map[string][]storage.Op{"check": checks, "delete": deletes} {
		var failed *storage.OpError
		if _, err := b.Commit(t.Context(), ops); !errors.As(err, &failed) || failed.Index != 1 || !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("%s: got %.300v, expected the second operation's conflict", what, err)
		}
	}
	checks, deletes = ops(own)
	if _, err := b.Commit(t.Context(), checks); err != nil {
		t.Errorf("checks: %v", err)
	}
	if _, err := b.Commit(t.Context(), deletes); err != nil {
		t.Errorf("deletes: %v", err)
	}
}

// The largest possible transaction: every operation moves its resource to another owner, two have parts, and a fence is announced.
func TestLargestCommit(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	owner, other := fixture.Write(t, b, box("owner", nil)), fixture.Write(t, b, box("other", nil))
	var ops []storage.Op
	for i := range 32 {
		res := box(fmt.Sprintf("box-%02d", i), nil)
		res.Owner = owner.GetId()
		res = fixture.Write(t, b, res)
		res.Owner = other.GetId()
		if i < 2 {
			res.Data.Value = content(i, 500<<10, false)
		}
		ops = append(ops, storage.Op{Write: res})
	}
	done := make(chan error, 1)
	go func() { done <- gateOf(b).SetFence(t.Context(), new("mem://there")) }()
	awaitAnnouncement(s)
	s.Advance(time.Minute)
	if _, err := b.Read(t.Context(), storage.StrongConsistency, owner.GetId()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commit(t.Context(), ops); err != nil {
		t.Error(err)
	}
	if ids, err := b.OwnerReferences(t.Context(), other.GetId()); err != nil || len(ids) != 32 {
		t.Errorf("%d references: %v", len(ids), err)
	}
	if err := advanceUntil(t, s, done); err != nil {
		t.Fatal(err)
	}
}

// Listings omit shards for a while: one that was read to its end and whose child is known, and one that is open when the reader
// starts. Each event arrives once, in the order of its key, after a resumption as well.
func TestIncompleteListings(t *testing.T) {
	t.Parallel()
	const writers = 6
	for name, omitted := range map[string]func(shard int, closed bool) bool{
		"Ended":     func(_ int, closed bool) bool { return closed },
		"OneOfFour": func(shard int, _ bool) bool { return shard%4 == 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			s.SetShards(4)
			if name == "OneOfFour" {
				s.SetOmissions(omitted)
				showSoon(s, 3)
			}
			b := handle(t, s)
			w := watch(t, b)
			afterSnapshot(t, w)
			begin := w.Cursor()
			j := &journal{}
			load(t, b, j, writers, 10, func(int) {}).Wait()
			s.SetOmissions(nil)
			if name == "Ended" {
				s.Roll()
				s.SetOmissions(omitted)
			}
			res := fixture.Write(t, b, box("middle", nil))
			s.Roll()
			fixture.Write(t, b, res)
			showSoon(s, 4)
			later, err := handle(t, s).WatchFrom(t.Context(), boxType, tenancy, "", begin)
			if err != nil {
				t.Fatal(err)
			}
			defer later.Close()
			for what, w := range map[string]storage.Watch{"following": w, "resumed": later} {
				finished, got := 0, map[string][]string{}
				for finished < writers || len(got["middle"]) < 2 {
					name, version, last := seen(fixture.Next(t, w))
					got[name] = append(got[name], version)
					if last {
						finished++
					}
				}
				for n := range writers {
					name := fmt.Sprintf("box-%02d", n)
					if want := j.of(name); !slices.Equal(got[name], want) {
						t.Errorf("%s, %s: %d events, %d writes, or a different order", what, name, len(got[name]), len(want))
					}
				}
			}
		})
	}
}

// showSoon makes listings complete again after a number of them.
func showSoon(s *dynamofake.Server, listings int) {
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "DescribeStream" {
			if listings--; listings == 0 {
				go s.SetOmissions(nil)
			}
		}
		return dynamofake.Fault{}
	})
}

// A version with more parts than any resource has matches nothing.
func TestVersionWithManyParts(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	res := fixture.Write(t, b, box("a", nil))
	stamp, err := base64.RawURLEncoding.DecodeString(res.GetVersion())
	if err != nil {
		t.Fatal(err)
	}
	stamp[25] = 200 // the number of parts
	res.Version = base64.RawURLEncoding.EncodeToString(stamp)
	if _, err := b.WriteCAS(t.Context(), res); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("WriteCAS: %v", err)
	}
	if err := b.DeleteCAS(t.Context(), res.GetId(), res.GetVersion()); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("DeleteCAS: %v", err)
	}
	if _, err := b.Commit(t.Context(), []storage.Op{{Write: res}}); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("Commit: %v", err)
	}
}
