//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// rig is a store with two handles: one direct, one through a proxy that loses answers.
type rig struct {
	proxy          *faultproxy.Proxy
	direct, behind *etcd.Backend
	events         storage.Watch // of the direct one
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := env.Etcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	r := &rig{proxy: proxy, direct: open(t, url), behind: open(t, through(url, server.Endpoint, proxy.Addr()))}
	r.events = fixture.WatchChanges(t, r.direct)
	return r
}

// result is what a call in the background returned.
type result struct {
	res *resourcepb.Resource
	err error
}

func (r *rig) writing(t *testing.T, res *resourcepb.Resource) <-chan result {
	done := make(chan result, 1)
	go func() {
		out, err := r.behind.WriteCAS(fixture.Context(t), res)
		done <- result{out, err}
	}()
	return done
}

func (r *rig) deleting(t *testing.T, res *resourcepb.Resource) <-chan result {
	done := make(chan result, 1)
	go func() { done <- result{err: r.behind.DeleteCAS(fixture.Context(t), res.Id, res.Version)} }()
	return done
}

// lose carries out a call whose request holds the pattern, and loses its answer after meanwhile has run: the request has been
// carried out by then.
func (r *rig) lose(t *testing.T, pattern string, call func() <-chan result, carriedOut func() bool, meanwhile func()) result {
	t.Helper()
	trap := r.proxy.HoldAnswer([]byte(pattern))
	done := call()
	select {
	case <-trap.Sprung():
	case <-fixture.Context(t).Done():
		t.Fatal("the request did not come by")
	}
	fixture.Eventually(t, "the request is carried out", carriedOut)
	meanwhile()
	trap.Cut()
	return <-done
}

func nothing() {}

func (r *rig) wantWritten(t *testing.T, got result) *resourcepb.Resource {
	t.Helper()
	if got.err != nil {
		t.Fatalf("the write that was carried out: %v", got.err)
	}
	return got.res
}

// wantNoMore demands that nothing else happened: the next event is that of a write made here.
func (r *rig) wantNoMore(t *testing.T) {
	t.Helper()
	wantNext(t, r.events, upserted(fixture.Write(t, r.direct, service("the-end"))))
}

func TestLostAnswerOfCreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	res := service("lost-create")
	got := r.wantWritten(t, r.lose(t, "lost-create", func() <-chan result { return r.writing(t, res) },
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
	first := fixture.Write(t, r.behind, service("lost-update"))
	got := r.wantWritten(t, r.lose(t, "lost-update", func() <-chan result { return r.writing(t, at(first, first.Version)) },
		func() bool { return fixture.Stored(t, r.direct, first.Id).Version != first.Version }, nothing))
	wantNext(t, r.events, upserted(first), upserted(got))
	r.wantNoMore(t)
}

// TestLostAnswerThenDeleted is the trap of a blind retry: it would create again what somebody has deleted.
func TestLostAnswerThenDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	res := service("lost-deleted")
	got := r.wantWritten(t, r.lose(t, "lost-deleted", func() <-chan result { return r.writing(t, res) },
		func() bool { return fixture.Stored(t, r.direct, res.Id) != nil },
		func() { fixture.Remove(t, r.direct, fixture.Stored(t, r.direct, res.Id)) }))
	if now := fixture.Stored(t, r.direct, res.Id); now != nil {
		t.Errorf("the write came back: %v", now)
	}
	wantNext(t, r.events, upserted(got), deleted(got))
	r.wantNoMore(t)
}

func TestLostAnswerThenOverwritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.behind, service("lost-overwritten"))
	var over *resourcepb.Resource
	got := r.wantWritten(t, r.lose(t, "lost-overwritten", func() <-chan result { return r.writing(t, at(first, first.Version)) },
		func() bool { return fixture.Stored(t, r.direct, first.Id).Version != first.Version },
		func() {
			over = fixture.Write(t, r.direct, at(first, fixture.Stored(t, r.direct, first.Id).Version))
		}))
	wantNext(t, r.events, upserted(first), upserted(got), upserted(over))
	r.wantNoMore(t)
}

func TestLostAnswerOfDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.behind, service("lost-delete"))
	got := r.lose(t, "lost-delete", func() <-chan result { return r.deleting(t, first) },
		func() bool { return fixture.Stored(t, r.direct, first.Id) == nil }, nothing)
	if got.err != nil {
		t.Errorf("the delete that was carried out: %v", got.err)
	}
	wantNext(t, r.events, upserted(first), deleted(first))
	r.wantNoMore(t)
}

func TestLostAnswerOfDeleteThenCreated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.behind, service("lost-recreated"))
	var second *resourcepb.Resource
	got := r.lose(t, "lost-recreated", func() <-chan result { return r.deleting(t, first) },
		func() bool { return fixture.Stored(t, r.direct, first.Id) == nil },
		func() { second = fixture.Write(t, r.direct, service("lost-recreated")) })
	if got.err != nil {
		t.Errorf("the delete that was carried out: %v", got.err)
	}
	wantNext(t, r.events, upserted(first), deleted(first), upserted(second))
	r.wantNoMore(t)
}

// TestLostAnswerOfFailure loses an answer that says no: the truth is still no.
func TestLostAnswerOfFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := fixture.Write(t, r.behind, service("lost-refusal"))
	second := fixture.Write(t, r.direct, at(first, first.Version))
	trap := r.proxy.CutAnswer([]byte("lost-refusal"))
	_, err := r.behind.WriteCAS(fixture.Context(t), at(first, first.Version))
	if !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a stale write: %v, want ErrCASFailure", err)
	}
	<-trap.Sprung()
	wantNext(t, r.events, upserted(first), upserted(second))
	r.wantNoMore(t)
}

func TestLostRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trap := r.proxy.CutRequest([]byte("never-arrives"))
	created := fixture.Write(t, r.behind, service("never-arrives"))
	<-trap.Sprung()
	trap = r.proxy.CutRequest([]byte("never-arrives"))
	updated := fixture.Write(t, r.behind, at(created, created.Version))
	<-trap.Sprung()
	trap = r.proxy.CutRequest([]byte("never-arrives"))
	fixture.Remove(t, r.behind, updated)
	<-trap.Sprung()
	wantNext(t, r.events, upserted(created), upserted(updated), deleted(updated))
	r.wantNoMore(t)
}

func TestLostAnswerOfCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := fixture.Write(t, r.behind, service("commit-old"))
	commit := func(ops ...storage.Op) func() <-chan result {
		return func() <-chan result {
			done := make(chan result, 1)
			go func() {
				out, err := r.behind.Commit(fixture.Context(t), ops)
				if err == nil && len(out) != len(ops) {
					err = errors.New("wrong number of results")
				}
				done <- result{err: err}
			}()
			return done
		}
	}
	got := r.lose(t, "commit-new", commit(storage.Op{Write: service("commit-new")}, storage.Op{Delete: old.Id, Version: old.Version}),
		func() bool { return fixture.Stored(t, r.direct, old.Id) == nil },
		func() { fixture.Remove(t, r.direct, fixture.Stored(t, r.direct, service("commit-new").Id)) })
	if got.err != nil {
		t.Errorf("the transaction that was carried out: %v", got.err)
	}
	if now := fixture.Stored(t, r.direct, service("commit-new").Id); now != nil {
		t.Errorf("the transaction was carried out twice: %v", now)
	}

	// Nothing but deletes.
	one, two := fixture.Write(t, r.direct, service("commit-one")), fixture.Write(t, r.direct, service("commit-two"))
	got = r.lose(t, "commit-one", commit(storage.Op{Delete: one.Id, Version: one.Version}, storage.Op{Delete: two.Id, Version: two.Version}),
		func() bool { return fixture.Stored(t, r.direct, one.Id) == nil },
		func() { fixture.Write(t, r.direct, service("commit-one")) })
	if got.err != nil {
		t.Errorf("the transaction of deletes that was carried out: %v", got.err)
	}
}

// TestUnreachableSaysUnknown is the one case in which the outcome stays open.
func TestUnreachableSaysUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trap := r.proxy.HoldAnswer([]byte("unknown-outcome"))
	ctx, cancel := context.WithCancel(fixture.Context(t))
	done := make(chan error, 1)
	go func() {
		_, err := r.behind.WriteCAS(ctx, service("unknown-outcome"))
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
