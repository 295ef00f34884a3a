//go:build integration

package etcdserver_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// side is a server under random requests. A revision is recorded as the number of its step.
type side struct {
	c     *clientv3.Client
	kv    pb.KVClient
	steps []int64
}

func newSide(c *clientv3.Client) *side { return &side{c: c, kv: pb.NewKVClient(c.ActiveConnection())} }

func (s *side) step(r int64) int {
	if r == 0 {
		return 0
	}
	at, _ := slices.BinarySearch(s.steps, r)
	return at + 1
}

// at returns the revision of a step. 0 is none, and a step in the future is a future revision.
func (s *side) at(step int) int64 {
	switch {
	case step == 0:
		return 0
	case step < 0:
		return -1
	case step > len(s.steps):
		return s.steps[len(s.steps)-1] + 1_000_000
	}
	return s.steps[step-1]
}

func (s *side) pairs(kvs []*mvccpb.KeyValue, lease bool) string {
	var text []string
	for _, kv := range kvs {
		if kv == nil {
			text = append(text, "nothing")
			continue
		}
		text = append(text, fmt.Sprintf("%q=%q created %d modified %d version %d lease %d", kv.Key, kv.Value, s.step(kv.CreateRevision), s.step(kv.ModRevision), kv.Version, map[bool]int64{true: kv.Lease}[lease]))
	}
	return strings.Join(text, ", ")
}

func (s *side) said(answer any, err error, r any) string {
	if err != nil {
		e := status.Convert(err)
		return fmt.Sprintf("%v: %s", e.Code(), e.Message())
	}
	switch a := answer.(type) {
	case *pb.RangeResponse:
		req := r.(*pb.RangeRequest)
		return fmt.Sprintf("count %d more %v: %s", a.Count, a.More, s.pairs(a.Kvs, !req.KeysOnly))
	case *pb.PutResponse:
		return "put " + s.pairs([]*mvccpb.KeyValue{a.PrevKv}, true)
	case *pb.DeleteRangeResponse:
		return fmt.Sprintf("deleted %d: %s", a.Deleted, s.pairs(a.PrevKvs, true))
	case *pb.TxnResponse:
		req := r.(*pb.TxnRequest)
		branch := req.Success
		if !a.Succeeded {
			branch = req.Failure
		}
		text := fmt.Sprintf("txn %v {", a.Succeeded)
		for i, one := range a.Responses {
			switch x := one.Response.(type) {
			case *pb.ResponseOp_ResponseRange:
				text += s.said(x.ResponseRange, nil, branch[i].GetRequestRange()) + "; "
			case *pb.ResponseOp_ResponsePut:
				text += s.said(x.ResponsePut, nil, nil) + "; "
			case *pb.ResponseOp_ResponseDeleteRange:
				text += s.said(x.ResponseDeleteRange, nil, nil) + "; "
			case *pb.ResponseOp_ResponseTxn:
				text += s.said(x.ResponseTxn, nil, branch[i].GetRequestTxn()) + "; "
			}
		}
		return text + "}"
	}
	return fmt.Sprintf("%T", answer)
}

const unknownLease = 77

// plan is a random request whose revisions are steps.
type plan func(s *side) any

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

var (
	storable = []string{"a", "b", "ab", "a/", "a/1", "a/2", "a/é", "é", "z", "\x01", "\x7f", "\U0010ffff"}
	anyKeys  = append(slices.Clone(storable), "\x00", "\xff", "a\x00", "\xc3", "a/\xff")
	ends     = append(slices.Clone(anyKeys), "\x00", "\x00", "a0", "\xc4", "z\x00", "\xff\xff")
)

type maker struct {
	*rand.Rand
	leases []int64
	now    int // the number of steps
}

func (m *maker) end() []byte {
	if m.IntN(3) == 0 {
		return nil
	}
	return []byte(pick(m.Rand, ends...))
}

func (m *maker) step() int {
	switch m.IntN(12) {
	case 0:
		return m.now + 10
	case 1:
		return -1
	case 2, 3, 4:
		return 1 + m.IntN(m.now)
	}
	return 0
}

func (m *maker) bound() int {
	if m.IntN(5) == 0 {
		return 1 + m.IntN(m.now)
	}
	return 0
}

func (m *maker) ranges() func(s *side) *pb.RangeRequest {
	one := pb.RangeRequest{
		Key: []byte(pick(m.Rand, anyKeys...)), RangeEnd: m.end(), Limit: pick(m.Rand, int64(0), 0, 0, 1, 2, 3, -1),
		SortOrder:    pick(m.Rand, pb.RangeRequest_NONE, pb.RangeRequest_ASCEND, pb.RangeRequest_DESCEND),
		Serializable: m.IntN(5) == 0, KeysOnly: m.IntN(5) == 0, CountOnly: m.IntN(5) == 0,
	}
	step, minMod, maxMod, minCreate, maxCreate := m.step(), m.bound(), m.bound(), m.bound(), m.bound()
	return func(s *side) *pb.RangeRequest {
		return &pb.RangeRequest{
			Key: one.Key, RangeEnd: one.RangeEnd, Limit: one.Limit, SortOrder: one.SortOrder, Serializable: one.Serializable, KeysOnly: one.KeysOnly,
			CountOnly: one.CountOnly, Revision: s.at(step), MinModRevision: s.at(minMod), MaxModRevision: s.at(maxMod),
			MinCreateRevision: s.at(minCreate), MaxCreateRevision: s.at(maxCreate),
		}
	}
}

// inTxn returns a range request of a transaction. etcd takes a negative revision there for a compacted one.
func (m *maker) inTxn() func(s *side) *pb.RangeRequest {
	g := m.ranges()
	return func(s *side) *pb.RangeRequest {
		r := g(s)
		r.Revision = max(r.Revision, 0)
		return r
	}
}

func (m *maker) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: []byte(pick(m.Rand, storable...)), PrevKv: m.IntN(2) == 0}
	if r.IgnoreValue = m.IntN(6) == 0; !r.IgnoreValue || m.IntN(5) == 0 {
		r.Value = []byte(pick(m.Rand, "", "x", "y"))
	}
	if r.IgnoreLease = m.IntN(6) == 0; (!r.IgnoreLease || m.IntN(5) == 0) && m.IntN(3) == 0 {
		r.Lease = pick(m.Rand, m.leases...)
	}
	if r.Lease == unknownLease && r.IgnoreValue {
		r.Lease = 0 // two errors apply
	}
	return r
}

func (m *maker) delete() *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: []byte(pick(m.Rand, anyKeys...)), RangeEnd: m.end(), PrevKv: m.IntN(2) == 0}
}

func (m *maker) compare(ranges bool) func(s *side) *pb.Compare {
	c := &pb.Compare{Key: []byte(pick(m.Rand, anyKeys...)), Result: pick(m.Rand, pb.Compare_EQUAL, pb.Compare_EQUAL, pb.Compare_GREATER, pb.Compare_LESS, pb.Compare_NOT_EQUAL)}
	if ranges {
		c.RangeEnd = m.end()
	}
	step := m.IntN(m.now + 1)
	number := int64(m.IntN(4))
	lease := pick(m.Rand, append([]int64{0}, m.leases...)...)
	c.Target = pick(m.Rand, pb.Compare_MOD, pb.Compare_CREATE, pb.Compare_VERSION, pb.Compare_VALUE, pb.Compare_LEASE)
	value := []byte(pick(m.Rand, "", "x", "y"))
	return func(s *side) *pb.Compare {
		out := &pb.Compare{Key: c.Key, RangeEnd: c.RangeEnd, Result: c.Result, Target: c.Target}
		switch c.Target {
		case pb.Compare_MOD:
			out.TargetUnion = &pb.Compare_ModRevision{ModRevision: s.at(step)}
		case pb.Compare_CREATE:
			out.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: s.at(step)}
		case pb.Compare_VERSION:
			out.TargetUnion = &pb.Compare_Version{Version: number}
		case pb.Compare_VALUE:
			out.TargetUnion = &pb.Compare_Value{Value: value}
		case pb.Compare_LEASE:
			out.TargetUnion = &pb.Compare_Lease{Lease: lease}
		}
		return out
	}
}

// txn returns a transaction. One that changes nothing may compare ranges.
func (m *maker) txn(depth int, reads bool) func(s *side) *pb.TxnRequest {
	var compares []func(*side) *pb.Compare
	for range m.IntN(3) {
		compares = append(compares, m.compare(reads))
	}
	branch := func() (ops []func(*side) *pb.RequestOp) {
		for range m.IntN(4) {
			switch n := m.IntN(8); {
			case n < 2 && !reads:
				p := m.put()
				ops = append(ops, func(*side) *pb.RequestOp { return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}} })
			case n < 4 && !reads:
				d := m.delete()
				ops = append(ops, func(*side) *pb.RequestOp {
					return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d}}
				})
			case n == 4 && depth > 0:
				t := m.txn(depth-1, reads)
				ops = append(ops, func(s *side) *pb.RequestOp { return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t(s)}} })
			default:
				g := m.inTxn()
				ops = append(ops, func(s *side) *pb.RequestOp { return rangeOp(g(s)) })
			}
		}
		return ops
	}
	success, failure := branch(), branch()
	return func(s *side) *pb.TxnRequest {
		r := &pb.TxnRequest{}
		for _, c := range compares {
			r.Compare = append(r.Compare, c(s))
		}
		for _, op := range success {
			r.Success = append(r.Success, op(s))
		}
		for _, op := range failure {
			r.Failure = append(r.Failure, op(s))
		}
		return r
	}
}

func (s *side) do(ctx context.Context, request any) string {
	switch r := request.(type) {
	case *pb.RangeRequest:
		a, err := s.kv.Range(ctx, r)
		return s.noted(ctx, func() string { return s.said(a, err, r) })
	case *pb.PutRequest:
		a, err := s.kv.Put(ctx, r)
		return s.noted(ctx, func() string { return s.said(a, err, r) })
	case *pb.DeleteRangeRequest:
		a, err := s.kv.DeleteRange(ctx, r)
		return s.noted(ctx, func() string { return s.said(a, err, r) })
	case *pb.TxnRequest:
		a, err := s.kv.Txn(ctx, r)
		return s.noted(ctx, func() string { return s.said(a, err, r) })
	case *pb.CompactionRequest:
		_, err := s.kv.Compact(ctx, r)
		return s.noted(ctx, func() string { return s.said(nil, err, r) })
	}
	return ""
}

// noted records the revision after a step, and formats the answer.
func (s *side) noted(ctx context.Context, format func() string) string {
	r, err := s.c.Get(ctx, "no such key")
	if err != nil {
		return err.Error()
	}
	s.steps = append(s.steps, r.Header.Revision)
	return format()
}

// watched returns the changes of a range since a step, sorted within each step.
func (s *side) watched(ctx context.Context, key, end []byte, since int, filters []pb.WatchCreateRequest_FilterType) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	w, err := pb.NewWatchClient(s.c.ActiveConnection()).Watch(ctx)
	if err != nil {
		return err.Error()
	}
	for _, r := range []*pb.WatchCreateRequest{
		{Key: key, RangeEnd: end, StartRevision: s.at(since) + 1, PrevKv: true, Filters: filters},
	} {
		if err := w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
			return err.Error()
		}
	}
	go func() { // a server may ignore requests until the watch has caught up
		progress := &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
		for w.Send(&pb.WatchRequest{RequestUnion: progress}) == nil {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}()
	var lines []string
	for {
		a, err := w.Recv()
		if err != nil {
			return err.Error()
		}
		for _, ev := range a.Events {
			lines = append(lines, fmt.Sprintf("%09d %s %s before %s", s.step(ev.Kv.ModRevision), ev.Type, s.pairs([]*mvccpb.KeyValue{ev.Kv}, true), s.pairs([]*mvccpb.KeyValue{ev.PrevKv}, true)))
		}
		switch {
		case a.Canceled:
			return fmt.Sprintf("canceled, %d, compacted %v", len(lines), a.CompactRevision != 0)
		case a.WatchId == -1 && !a.Created:
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		}
	}
}

// knownDifference reports whether doc.go documents a difference for a request that this server has refused.
func knownDifference(request any, ours string) bool {
	t, ok := request.(*pb.TxnRequest)
	if !ok {
		return false
	}
	known := false
	for _, op := range slices.Concat(t.Success, t.Failure) {
		known = known || op.GetRequestTxn() != nil || string(op.GetRequestDeleteRange().GetRangeEnd()) == "\x00"
	}
	return known && strings.Contains(ours, "duplicate key")
}

func TestRandomRequestsAreAnsweredAsByEtcd(t *testing.T) {
	t.Parallel()
	count, seed := 1500, rand.Uint64()
	if n, err := strconv.Atoi(os.Getenv("ASHLAR_RANDOM")); err == nil {
		count = n
	}
	if n, err := strconv.ParseUint(os.Getenv("ASHLAR_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("the seed is %d", seed)
	theirs := newSide(env.StartEtcd(t).Client(t))
	engine := cmp.Or(os.Getenv("ASHLAR_ENGINE"), "memory")
	ours := newSide(client(t, serve(t, fixture.Open(t, aloneOn[engine](t)), nil)))
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1)), leases: []int64{unknownLease}}
	for id := int64(1); id <= 3; id++ {
		for _, s := range []*side{theirs, ours} {
			if _, err := pb.NewLeaseClient(s.c.ActiveConnection()).LeaseGrant(ctx(t), &pb.LeaseGrantRequest{ID: id, TTL: 36000}); err != nil {
				t.Fatal(err)
			}
		}
		m.leases = append(m.leases, id)
	}
	compacted := 1
	for _, s := range []*side{theirs, ours} {
		s.do(ctx(t), &pb.PutRequest{Key: []byte("first")})
	}
	differences := 0
	for range count {
		m.now = len(ours.steps)
		var make plan
		switch n := m.IntN(100); {
		case n < 25:
			g := m.ranges()
			make = func(s *side) any { return g(s) }
		case n < 50:
			p := m.put()
			make = func(*side) any { return p }
		case n < 60:
			d := m.delete()
			make = func(*side) any { return d }
		case n < 90:
			x := m.txn(2, m.IntN(4) == 0)
			make = func(s *side) any { return x(s) }
		case n < 91:
			step := cmp.Or(m.step(), compacted)
			if step > m.now-20 && step <= m.now {
				step = max(m.now-20, 1)
			}
			if step > compacted && step <= m.now {
				compacted = step
			}
			make = func(s *side) any { return &pb.CompactionRequest{Revision: s.at(step)} }
		default:
			key, end, since := []byte(pick(m.Rand, append(slices.Clone(anyKeys), "")...)), m.end(), max(m.now-m.IntN(15), compacted)
			if theirs.at(since) == theirs.at(m.now) {
				continue // etcd reports no progress of a watch of the future
			}
			if len(end) > 0 && !(len(end) == 1 && end[0] == 0) && bytes.Compare(key, end) >= 0 {
				continue
			}
			filters := pick(m.Rand, nil, nil, []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}, []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE})
			a, b := theirs.watched(ctx(t), key, end, since, filters), ours.watched(ctx(t), key, end, since, filters)
			if a != b {
				differences++
				t.Errorf("watch of %q to %q since %d, %v:\n  etcd:\n%s\n  here:\n%s", key, end, since, filters, a, b)
			}
			continue
		}
		b := ours.do(ctx(t), make(ours))
		if knownDifference(make(ours), b) {
			ours.steps = ours.steps[:len(ours.steps)-1]
			continue
		}
		a := theirs.do(ctx(t), make(theirs))
		if a != b && !(strings.Contains(a, ": etcdserver: ") && strings.Contains(b, ": etcdserver: ")) { // of several errors, another may be first
			differences++
			t.Errorf("step %d, %T %v:\n  etcd: %s\n  here: %s", m.now+1, make(ours), make(ours), a, b)
		}
		if differences > 5 {
			t.Fatal("too many differences")
		}
	}
}
