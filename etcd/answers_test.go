//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// rig is a store with two handles: direct is connected to the server, proxied through a proxy that can lose answers.
type rig struct {
	proxy           *faultproxy.Proxy
	direct, proxied *etcd.Backend
	events          storage.Watch // of direct
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := env.Etcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	r := &rig{proxy: proxy, direct: open(t, url), proxied: open(t, through(url, server.Endpoint, proxy.Addr()))}
	r.events = fixture.WatchChanges(t, r.direct)
	return r
}

// result is the result of a call in the background.
type result struct {
	res *resourcepb.Resource
	err error
}

// startWrite writes res through the proxy, in the background.
func (r *rig) startWrite(t *testing.T, res *resourcepb.Resource) <-chan result {
	done := make(chan result, 1)
	go func() {
		out, err := r.proxied.WriteCAS(fixture.Context(t), res)
		done <- result{out, err}
	}()
	return done
}

// startDelete deletes res through the proxy, in the background.
func (r *rig) startDelete(t *testing.T, res *resourcepb.Resource) <-chan result {
	done := make(chan result, 1)
	go func() { done <- result{err: r.proxied.DeleteCAS(fixture.Context(t), res.Id, res.Version)} }()
	return done
}

// loseAnswer starts a call whose request contains the pattern. Once the request is applied, it runs meanwhile and drops the answer.
func (r *rig) loseAnswer(t *testing.T, pattern string, call func() <-chan result, applied func() bool, meanwhile func()) result {
	t.Helper()
	trap := r.proxy.HoldAnswer([]byte(pattern))
	done := call()
	select {
	case <-trap.Sprung():
	case <-fixture.Context(t).Done():
		t.Fatal("the proxy saw no such request")
	}
	fixture.Eventually(t, "the request is applied", applied)
	meanwhile()
	trap.Cut()
	return <-done
}

func nothing() {}

func (r *rig) wantWritten(t *testing.T, got result) *resourcepb.Resource {
	t.Helper()
	if got.err != nil {
		t.Fatalf("the applied write: %v", got.err)
	}
	return got.res
}

// wantNoMore requires that there is no further event, by a write that must be the next one.
func (r *rig) wantNoMore(t *testing.T) {
	t.Helper()
	wantNext(t, r.events, upserted(fixture.Write(t, r.direct, service("the-end"))))
}

func TestLostAnswerOfCreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	res := service("lost-create")
	got := r.wantWritten(t, r.loseAnswer(t, "lost-create", func() <-chan result { return r.startWrite(t, res) },
		func() bool { return fixture.Stored(t, r.direct, res.Id) != nil }, nothing))
	if now := fixture.Stored(t, r.direct, res.Id); now.Version != got.Version {
		t.Errorf("the write returned version %s, stored is %s", got.Version, now.Version)
	}
	wantNext(t, r.events, upserted(got))
	r.wantNoMore(t)
}

func TestLostAnswerOfUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.proxied, service("lost-update"))
	got := r.wantWritten(t, r.loseAnswer(t, "lost-update", func() <-chan result { return r.startWrite(t, at(first, first.Version)) },
		func() bool { return fixture.Stored(t, r.direct, first.Id).Version != first.Version }, nothing))
	wantNext(t, r.events, upserted(first), upserted(got))
	r.wantNoMore(t)
}

// A blind retry would create the resource again, although another caller has deleted it.
func TestLostAnswerThenDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	res := service("lost-deleted")
	got := r.wantWritten(t, r.loseAnswer(t, "lost-deleted", func() <-chan result { return r.startWrite(t, res) },
		func() bool { return fixture.Stored(t, r.direct, res.Id) != nil },
		func() { fixture.Remove(t, r.direct, fixture.Stored(t, r.direct, res.Id)) }))
	if now := fixture.Stored(t, r.direct, res.Id); now != nil {
		t.Errorf("the write was applied again: %v", now)
	}
	wantNext(t, r.events, upserted(got), deleted(got))
	r.wantNoMore(t)
}

func TestLostAnswerThenOverwritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.proxied, service("lost-overwritten"))
	var overwrite *resourcepb.Resource
	got := r.wantWritten(t, r.loseAnswer(t, "lost-overwritten", func() <-chan result { return r.startWrite(t, at(first, first.Version)) },
		func() bool { return fixture.Stored(t, r.direct, first.Id).Version != first.Version },
		func() {
			overwrite = fixture.Write(t, r.direct, at(first, fixture.Stored(t, r.direct, first.Id).Version))
		}))
	wantNext(t, r.events, upserted(first), upserted(got), upserted(overwrite))
	r.wantNoMore(t)
}

func TestLostAnswerOfDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.proxied, service("lost-delete"))
	got := r.loseAnswer(t, "lost-delete", func() <-chan result { return r.startDelete(t, first) },
		func() bool { return fixture.Stored(t, r.direct, first.Id) == nil }, nothing)
	if got.err != nil {
		t.Errorf("the applied delete: %v", got.err)
	}
	wantNext(t, r.events, upserted(first), deleted(first))
	r.wantNoMore(t)
}

func TestLostAnswerOfDeleteThenCreated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.proxied, service("lost-recreated"))
	var second *resourcepb.Resource
	got := r.loseAnswer(t, "lost-recreated", func() <-chan result { return r.startDelete(t, first) },
		func() bool { return fixture.Stored(t, r.direct, first.Id) == nil },
		func() { second = fixture.Write(t, r.direct, service("lost-recreated")) })
	if got.err != nil {
		t.Errorf("the applied delete: %v", got.err)
	}
	wantNext(t, r.events, upserted(first), deleted(first), upserted(second))
	r.wantNoMore(t)
}

// If the lost answer was a failure, the call still fails.
func TestLostAnswerOfFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.proxied, service("lost-refusal"))
	second := fixture.Write(t, r.direct, at(first, first.Version))
	trap := r.proxy.CutAnswer([]byte("lost-refusal"))
	_, err := r.proxied.WriteCAS(fixture.Context(t), at(first, first.Version))
	if !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a stale write: %v, want ErrCASFailure", err)
	}
	<-trap.Sprung()
	wantNext(t, r.events, upserted(first), upserted(second))
	r.wantNoMore(t)
}

// Only a retained history proves that a write was not applied. The check for a compaction fails at first; then the history is compacted.
func TestLostAnswerOfFailureThenCompacted(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t) // not shared, because the test compacts it
	client := server.Client(t)
	var loseWrite, loseCheck atomic.Bool
	lost := status.Error(codes.Internal, "the test loses the answer") // the client would repeat a read after Unavailable
	b := openThrough(t, server, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if err := invoke(ctx, method, req, reply, conn, opts...); err != nil {
				return err
			}
			switch req := req.(type) {
			case *pb.TxnRequest:
				if !loseWrite.CompareAndSwap(true, false) {
					return nil
				}
				if _, err := client.Put(ctx, "elsewhere", ""); err != nil { // a later revision, for the scan to read
					return err
				}
				loseCheck.Store(true)
				return lost
			case *pb.RangeRequest:
				if req.CountOnly && req.Revision != 0 && loseCheck.CompareAndSwap(true, false) {
					compact(t, client)
					return lost
				}
			}
			return nil
		}))
	first := fixture.Write(t, b, service("lost-refusal"))
	fixture.Write(t, b, at(first, first.Version))
	loseWrite.Store(true)
	if _, err := b.WriteCAS(fixture.Context(t), at(first, first.Version)); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("a stale write whose answer was lost: %v, want ErrInconsistent", err)
	}
	if loseWrite.Load() || loseCheck.Load() {
		t.Error("no answer was lost")
	}
}

func TestLostRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trap := r.proxy.CutRequest([]byte("never-arrives"))
	created := fixture.Write(t, r.proxied, service("never-arrives"))
	<-trap.Sprung()
	trap = r.proxy.CutRequest([]byte("never-arrives"))
	updated := fixture.Write(t, r.proxied, at(created, created.Version))
	<-trap.Sprung()
	trap = r.proxy.CutRequest([]byte("never-arrives"))
	fixture.Remove(t, r.proxied, updated)
	<-trap.Sprung()
	wantNext(t, r.events, upserted(created), upserted(updated), deleted(updated))
	r.wantNoMore(t)
}

func TestLostAnswerOfCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := fixture.Write(t, r.proxied, service("commit-old"))
	commit := func(ops ...storage.Op) func() <-chan result {
		return func() <-chan result {
			done := make(chan result, 1)
			go func() {
				out, err := r.proxied.Commit(fixture.Context(t), ops)
				if err == nil && len(out) != len(ops) {
					err = errors.New("wrong number of results")
				}
				done <- result{err: err}
			}()
			return done
		}
	}
	got := r.loseAnswer(t, "commit-new", commit(storage.Op{Write: service("commit-new")}, storage.Op{Delete: old.Id, Version: old.Version}),
		func() bool { return fixture.Stored(t, r.direct, old.Id) == nil },
		func() { fixture.Remove(t, r.direct, fixture.Stored(t, r.direct, service("commit-new").Id)) })
	if got.err != nil {
		t.Errorf("the applied transaction: %v", got.err)
	}
	if now := fixture.Stored(t, r.direct, service("commit-new").Id); now != nil {
		t.Errorf("the transaction was applied twice: %v", now)
	}

	// Only deletes.
	one, two := fixture.Write(t, r.direct, service("commit-one")), fixture.Write(t, r.direct, service("commit-two"))
	got = r.loseAnswer(t, "commit-one", commit(storage.Op{Delete: one.Id, Version: one.Version}, storage.Op{Delete: two.Id, Version: two.Version}),
		func() bool { return fixture.Stored(t, r.direct, one.Id) == nil },
		func() { fixture.Write(t, r.direct, service("commit-one")) })
	if got.err != nil {
		t.Errorf("the applied transaction of deletes: %v", got.err)
	}
}

// The outcome remains unknown only if the cluster is unreachable until the call ends.
func TestUnreachableOutcomeUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trap := r.proxy.HoldAnswer([]byte("unknown-outcome"))
	ctx, cancel := context.WithCancel(fixture.Context(t))
	done := make(chan error, 1)
	go func() {
		_, err := r.proxied.WriteCAS(ctx, service("unknown-outcome"))
		done <- err
	}()
	<-trap.Sprung()
	r.proxy.Refuse()
	cancel()
	err := <-done
	if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, ctx.Err()) {
		t.Errorf("a write without an answer: %v, want ErrInconsistent and the context's error", err)
	}
	r.proxy.Resume()
}
