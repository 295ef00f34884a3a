package service

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// smallTransactor is a backend with small transactions. The first one waits until it is released.
type smallTransactor struct {
	storage.Transactor
	t       *testing.T
	holdCh  chan struct{}
	commits int
}

func (*smallTransactor) MaxOps() int { return 6 }

func (s *smallTransactor) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if s.commits++; s.commits == 1 {
		<-s.holdCh
	}
	if len(ops) > s.MaxOps() {
		s.t.Errorf("a transaction has %d operations", len(ops))
	}
	return s.Transactor.Commit(ctx, ops)
}

// Calls with one fence share transactions, and each call gets its own results: a refused call, calls that change one key, and calls that are too large
// together do not affect the others. Nothing is left of a fence without calls.
func TestFencedCallsHaveTheirResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		tx := &smallTransactor{Transactor: b, t: t, holdCh: make(chan struct{})}
		lock := fixture.Write(t, b, fixture.Resource("lock", ""))
		fence := &storage.Op{Check: lock.Id, Version: lock.Version}
		write := func(name string, size int) storage.Op {
			return storage.Op{Write: fixture.Resource(name, string(make([]byte, size)))}
		}
		stale := write("stale", 1)
		stale.Write.Version = "stale"
		stored := fixture.Write(t, b, fixture.Resource("stored", ""))
		calls := map[string]struct {
			ops []storage.Op
			err *storage.OpError
		}{
			"first":    {ops: []storage.Op{write("first", 1)}},
			"pair":     {ops: []storage.Op{write("pair", 1), write("pair-2", 1)}},
			"deletion": {ops: []storage.Op{{Delete: stored.Id, Version: stored.Version}, write("deletion-2", 1)}},
			"stale":    {[]storage.Op{write("stale-1", 1), stale}, &storage.OpError{Index: 1, Err: storage.ErrCASFailure}},
			"large":    {ops: []storage.Op{write("large", 600<<10)}},
			"large-2":  {ops: []storage.Op{write("large-2", 600<<10)}},
			"twice":    {ops: []storage.Op{write("twice", 1), {Check: fixture.ID("none")}}},
			"twice-2":  {ops: []storage.Op{write("twice-2", 1), {Check: fixture.ID("none")}}},
		}
		var f fencedCommits
		ended := make(chan string, len(calls))
		start := func(name string) {
			go func() {
				call := calls[name]
				results, err := f.commit(t.Context(), tx, fence, call.ops)
				failed := (*storage.OpError)(nil)
				switch {
				case call.err == nil && (err != nil || len(results) != len(call.ops)):
					t.Errorf("%s: %d results, %v", name, len(results), err)
				case call.err == nil && call.ops[0].Write != nil && results[0].GetId().GetName() != name:
					t.Errorf("%s: got the result %v of another call", name, results[0])
				case call.err != nil && (!errors.As(err, &failed) || failed.Index != call.err.Index || !errors.Is(err, call.err.Err)):
					t.Errorf("%s: %v, expected %v", name, err, call.err)
				}
				ended <- name
			}()
			synctest.Wait()
		}
		for _, name := range []string{"first", "twice", "twice-2", "large", "large-2", "pair", "deletion", "stale"} { // a transaction has up to two calls
			start(name)
		}
		close(tx.holdCh)
		for range calls {
			<-ended
		}
		synctest.Wait()
		if len(f.lines) != 0 {
			t.Errorf("%d fences without calls are kept", len(f.lines))
		}
		for name, call := range calls {
			for i, op := range call.ops {
				if op.Write == nil {
					continue
				}
				if exists := fixture.Stored(t, b, op.Write.Id) != nil; exists != (call.err == nil) {
					t.Errorf("%s: operation %d is stored: %v", name, i, exists)
				}
			}
		}
		if fixture.Stored(t, b, stored.Id) != nil {
			t.Error("the deleted resource is stored")
		}
		if tx.commits >= 2+2*len(calls) {
			t.Errorf("%d transactions for %d calls", tx.commits, len(calls))
		}
		fixture.Write(t, b, lock)
		if _, err := f.commit(t.Context(), tx, fence, []storage.Op{write("late", 1)}); !errors.Is(err, errFenceOutdated) {
			t.Errorf("a call with an outdated fence returned %v", err)
		}
	})
}
