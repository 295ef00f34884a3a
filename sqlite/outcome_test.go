package sqlite

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// namesAfterCrash returns the names in a copy of the store's files as after a crash, without the index of the -wal
// file.
func namesAfterCrash(t *testing.T, s *Backend) string {
	t.Helper()
	to := newPath(t)
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(s.Path() + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return names(t, open(t, to, nil))
}

// If a commit fails and the next attempt cannot begin, a crash may restore the write. So its error must not exclude the
// write.
func TestFailedCommitWithoutRetry(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	failReads := func() { f.failReads.Store(math.MaxInt32) }
	f.onFailedSync.Store(&failReads)
	f.failSyncs.Store(1)
	_, err := s.WriteCAS(t.Context(), resource("a", 1))
	f.failReads.Store(0)
	if err == nil {
		t.Fatal("the write was acknowledged")
	}
	if got := namesAfterCrash(t, s); got != "a " {
		t.Fatalf("after a crash the store has %q, expected a: the test does not reach its case", got)
	}
	if !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("got error %v, expected ErrInconsistent, because a crash restores the write", err)
	}
}

// If a commit takes effect but fails, and checking its outcome fails too, the next attempt finds the commit and
// recognizes it as its own.
func TestFailedCommitFoundInLog(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " requests"), func(t *testing.T) {
			t.Parallel()
			w := newTestWriter(t, open(t, newPath(t), nil))
			tx, err := w.begin()
			if err != nil {
				t.Fatal(err)
			}
			var batch []*request
			for i := range n {
				m := &driver.Mutation{Verb: driver.Write, Uid: "u"}
				batch = append(batch, &request{mutations: []mutation{{Mutation: m, key: fmt.Appendf(nil, "g\x00k\x00\x00\x00%d", i), data: []byte{1}}}})
			}
			if err := w.applyAndCommit(&tx, batch); err != nil {
				t.Fatal(err)
			}
			want := batch[n-1].mutations[0].at
			w.commits = nil
			w.applyOneByOne(batch, &tx, fmt.Errorf("%w: %w", errUnknownOutcome, io.ErrUnexpectedEOF))
			for i, r := range batch {
				if r.err != nil {
					t.Errorf("request %d took effect, got error %v", i, r.err)
				}
			}
			if got := batch[n-1].mutations[0].at; got != want || len(w.commits) != 1 || w.commits[0].end != want {
				t.Errorf("the request has position %v, the commits are %v; expected %v", got, w.commits, want)
			}
		})
	}
}

// Watches see one event for a commit that fails after it took effect.
func TestFailedCommitTookEffect(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	w := fixture.WatchChanges(t, s)
	f.failAfterCommit.Store(1)
	for _, name := range []string{"a", "b"} {
		wantUpsert(t, w, fixture.Write(t, s, resource(name, 1)))
	}
	if n := f.failAfterCommit.Load(); n != 0 {
		t.Errorf("%d commits have not failed yet", n)
	}
}
