//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func historian(t testing.TB, b storage.Backend) history.Historian {
	t.Helper()
	h, ok := storage.As[history.Historian](b)
	if !ok {
		t.Fatal("the etcd backend is not a Historian")
	}
	return h
}

func newest(t testing.TB, h history.Historian) int64 {
	t.Helper()
	_, newest, err := h.Revisions(fixture.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return newest
}

// scanned reads all resources stored at a revision, page by page, as "name version created/modified/writes". 0 is the current revision.
func scanned(t testing.TB, h history.Historian, revision int64, opts history.ScanOptions) (lines []string, at int64) {
	t.Helper()
	opts.Revision = revision
	var span history.Range
	for count := int64(-1); ; {
		scan, err := h.Scan(fixture.Context(t), span, opts)
		if err != nil {
			t.Fatalf("scan at %d: %v", revision, err)
		}
		if opts.Count && count >= 0 && scan.Count != count {
			t.Errorf("%d resources of revision %d remain, expected %d", scan.Count, revision, count)
		}
		for _, r := range scan.Records {
			lines = append(lines, line(&r))
		}
		count = scan.Count - int64(len(scan.Records))
		opts.Revision = scan.Revision
		if !scan.More {
			if opts.Count && count != 0 {
				t.Errorf("the scan of revision %d has ended, but %d more were counted", revision, count)
			}
			return lines, scan.Revision
		}
		span.From = proto.Clone(scan.Records[len(scan.Records)-1].Resource.GetId()).(*resourcepb.ID)
		span.From.Name += "\x01"
	}
}

func line(r *history.Record) string {
	return fmt.Sprintf("%s %s %d/%d/%d", r.Resource.GetId().GetName(), r.Resource.GetVersion(), r.Created, r.Modified, r.Writes)
}

// A scan at a revision returns the resources stored then, with the numbers of their changes. It returns no other keys: no owner entries,
// notes, fences, or resources of other stores.
func TestScanAtRevision(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t) // not shared, so other tests do not raise its revision
	url := server.StoreURL(t)
	b, other := open(t, url), open(t, server.StoreURLIn(t, server.Prefix(t)+"/inner"))
	h := historian(t, b)

	type state struct {
		rev   int64
		lines []string
	}
	now := map[string]*history.Record{}
	var states []state
	record := func() {
		s := state{rev: newest(t, h)}
		for _, name := range slices.Sorted(maps.Keys(now)) {
			s.lines = append(s.lines, line(now[name]))
		}
		states = append(states, s)
	}
	record()
	owner := service("owner")
	for i := range 40 {
		name := fmt.Sprint("s", i%7)
		fixture.Write(t, other, service(fmt.Sprint("other", i)))
		old := now[name]
		if old != nil && i%5 == 0 {
			fixture.Remove(t, b, old.Resource)
			delete(now, name)
			record()
			continue
		}
		res := service(name)
		res.Owner = owner.Id
		r := &history.Record{Writes: 1}
		if old != nil {
			res.Version, r.Created, r.Writes = old.Resource.Version, old.Created, old.Writes+1
		}
		r.Resource = fixture.Write(t, b, res)
		if r.Modified = newest(t, h); old == nil {
			r.Created = r.Modified
		}
		now[name] = r
		record()
	}
	for _, reader := range []history.Historian{h, historian(t, open(t, url))} {
		for _, s := range states {
			for _, opts := range []history.ScanOptions{{Limit: 2, Count: true}, {KeysOnly: true, Limit: 3}, {}} {
				if lines, at := scanned(t, reader, s.rev, opts); !slices.Equal(lines, s.lines) || at != s.rev {
					t.Fatalf("at revision %d with %+v:\n%q of revision %d, expected\n%q", s.rev, opts, lines, at, s.lines)
				}
			}
		}
	}
}

// Revisions returns the oldest revision after a compaction by any program. Earlier revisions fail with ErrCompacted.
func TestRevisionsAfterCompaction(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	url := server.StoreURL(t)
	b := open(t, url)
	h := historian(t, b)
	oldest, _, err := h.Revisions(fixture.Context(t))
	if oldest != 1 || err != nil {
		t.Errorf("the oldest revision is %d, %v; expected 1", oldest, err)
	}
	res := fixture.Write(t, b, service("a"))
	client := server.Client(t)
	for range 3 {
		for range 5 {
			res = fixture.Write(t, b, at(res, res.Version))
		}
		compact(t, client)
		want := newest(t, h)
		res = fixture.Write(t, b, at(res, res.Version))
		for i, reader := range []history.Historian{h, h, historian(t, open(t, url))} {
			if oldest, end, err := reader.Revisions(fixture.Context(t)); oldest != want || end != want+1 || err != nil {
				t.Errorf("reader %d: revisions %d to %d, %v; expected %d to %d", i, oldest, end, err, want, want+1)
			}
			if lines, _ := scanned(t, reader, want, history.ScanOptions{}); len(lines) != 1 {
				t.Errorf("reader %d has %q at the oldest revision", i, lines)
			}
			_, err = reader.Scan(fixture.Context(t), history.Range{}, history.ScanOptions{Revision: want - 1})
			if !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("reader %d before the oldest revision: %v, expected ErrCompacted", i, err)
			}
		}
	}
}

// Compact makes a revision the oldest one. A later Compact of an earlier revision changes nothing.
func TestCompact(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	b := open(t, server.StoreURL(t))
	h, other := historian(t, b), historian(t, open(t, server.StoreURL(t)))
	var revisions []int64
	for i := range 6 {
		fixture.Write(t, b, service(fmt.Sprint("s", i)))
		revisions = append(revisions, newest(t, h))
	}
	wantOldest := func(want int64) {
		t.Helper()
		for _, reader := range []history.Historian{h, other} {
			if oldest, _, err := reader.Revisions(fixture.Context(t)); oldest != want || err != nil {
				t.Errorf("the oldest revision is %d, %v; expected %d", oldest, err, want)
			}
		}
	}
	for _, c := range []struct{ at, want int }{{3, 3}, {1, 3}, {3, 3}, {5, 5}} {
		for _, historian := range []history.Historian{h, other} {
			if err := historian.Compact(fixture.Context(t), revisions[c.at]); err != nil {
				t.Errorf("compact at change %d: %v", c.at, err)
			}
		}
		wantOldest(revisions[c.want])
	}
	if err := h.Compact(fixture.Context(t), newest(t, h)+1); !errors.Is(err, storage.ErrFutureRevision) {
		t.Errorf("compact at a future revision: %v, expected ErrFutureRevision", err)
	}
	if _, err := h.Scan(fixture.Context(t), history.Range{}, history.ScanOptions{Revision: newest(t, h) + 1}); !errors.Is(err, storage.ErrFutureRevision) || errors.Is(err, storage.ErrCompacted) {
		t.Errorf("scan at a future revision: %v, expected ErrFutureRevision", err)
	}
	wantOldest(revisions[5])
}

// requests counts the requests to the server by method, and the keys in the responses.
type requests struct {
	mu   sync.Mutex
	sent map[string]int
	keys int
}

func (r *requests) count(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	r.mu.Lock()
	if r.sent == nil {
		r.sent = map[string]int{}
	}
	r.sent[method]++
	r.mu.Unlock()
	err := invoke(ctx, method, req, reply, conn, opts...)
	if resp, ok := reply.(*pb.RangeResponse); ok {
		r.mu.Lock()
		r.keys += len(resp.Kvs)
		r.mu.Unlock()
	}
	return err
}

// take returns the numbers of requests to a method and of keys since the last call, and resets them.
func (r *requests) take(method string) (sent, keys int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, keys = r.sent[method], r.keys
	r.sent, r.keys = nil, 0
	return sent, keys
}

// A follower returns the version before each change, and reads many of those versions in one transaction.
func TestFollowerReadsPreviousVersions(t *testing.T) {
	t.Parallel()
	var sent requests
	server := env.StartEtcd(t)
	b := openThrough(t, server, grpc.WithUnaryInterceptor(sent.count))
	h := historian(t, b)
	const services = 300
	before := make([]*history.Record, services)
	for i := range before {
		before[i] = &history.Record{Resource: fixture.Write(t, b, service(fmt.Sprintf("s%03d", i))), Writes: 1}
		before[i].Created = newest(t, h)
		before[i].Modified = before[i].Created
	}
	start := newest(t, h)
	var want []string
	for i, r := range before {
		second := &history.Record{Resource: fixture.Write(t, b, at(r.Resource, r.Resource.Version)), Created: r.Created, Writes: 2}
		second.Modified = newest(t, h)
		want = append(want, line(r)+" > "+line(second))
		if i%10 == 0 {
			fixture.Remove(t, b, second.Resource)
			want = append(want, line(second)+" > nothing")
			third := &history.Record{Resource: fixture.Write(t, b, service(r.Resource.Id.Name)), Writes: 1}
			third.Modified = newest(t, h)
			third.Created = third.Modified
			want = append(want, "nothing > "+line(third))
		}
	}
	sent.take("")
	f, err := h.Follow(fixture.Context(t), history.Range{}, start)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := func(r *history.Record) string {
		if r == nil {
			return "nothing"
		}
		return line(r)
	}
	var got []string
	for len(got) < len(want) {
		changes, _, err := f.Next(fixture.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			got = append(got, text(c.Old)+" > "+text(c.New))
		}
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("change %d is %s, expected %s", i, got[i], want[i])
		}
	}
	if n, _ := sent.take("/etcdserverpb.KV/Txn"); n > 20 {
		t.Errorf("%d transactions were sent for %d changes, expected a few", n, len(want))
	}
}

// Each of many concurrent swaps has its own revision, and reports its own outcome.
func TestSwapsHaveOwnRevisions(t *testing.T) {
	t.Parallel()
	b := open(t, env.Etcd(t).StoreURL(t))
	h := historian(t, b)
	var all sync.WaitGroup
	var mu sync.Mutex
	revisions := map[int64]string{}
	var done atomic.Int64
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprint("s", i)
			var expect int64
			for j := range 12 {
				swap := history.Swap{Write: service(name), Expect: expect}
				if j%4 == 3 {
					swap = history.Swap{Delete: service(name).Id, Expect: expect}
				}
				s, err := h.Swap(fixture.Context(t), swap)
				if err != nil || !s.Done {
					t.Errorf("swap %d of %s: %+v, %v", j, name, s, err)
					return
				}
				if expect = s.Revision; swap.Delete != nil {
					expect = 0
				}
				mu.Lock()
				if other := revisions[s.Revision]; other != "" {
					t.Errorf("%s and %s have revision %d", other, name, s.Revision)
				}
				revisions[s.Revision] = name
				mu.Unlock()
				done.Add(1)
			}
		})
		all.Go(func() {
			res := service(fmt.Sprint("w", i))
			for range 12 {
				out, err := b.WriteCAS(fixture.Context(t), res)
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				res = at(res, out.Version)
			}
		})
	}
	all.Wait()
	if len(revisions) != int(done.Load()) || done.Load() != 8*12 {
		t.Errorf("%d swaps have %d revisions", done.Load(), len(revisions))
	}
	lines, _ := scanned(t, h, 0, history.ScanOptions{})
	for _, l := range lines {
		var name, version string
		var created, modified, writes int64
		if _, err := fmt.Sscanf(l, "%s %s %d/%d/%d", &name, &version, &created, &modified, &writes); err != nil {
			t.Fatal(err)
		}
		if other, ok := revisions[modified]; ok && other != name {
			t.Errorf("revision %d was a swap of %s, and %s has it", modified, other, name)
		}
	}
}
