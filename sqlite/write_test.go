package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// lockAsOtherProcess takes the writers' lock like another process.
func lockAsOtherProcess(t testing.TB, s *Backend) *os.File {
	t.Helper()
	file, err := os.OpenFile(s.handle.lockFile.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // closed already if the test has called unlockFile
	fixture.Eventually(t, "acquire the lock", func() bool {
		taken, err := tryLock(file)
		return taken && err == nil
	})

	return file
}

func unlockFile(t testing.TB, file *os.File) {
	t.Helper()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func names(t testing.TB, s *Backend) string {
	t.Helper()
	list, err := s.List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, res := range list {
		all += res.Id.Name + " "
	}
	return all
}

// A caller whose context ends while the writer waits for the lock has written nothing, and the lock is free afterwards.
func TestDeadlineInQueue(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	file := lockAsOtherProcess(t, s)
	_, err := s.WriteCAS(fixture.CallTimeout(t.Context(), t, time.Second/2), resource("timed-out", 1))
	if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got error %v, expected ErrInconsistent and the context's error", err)
	}
	if text := err.Error(); !strings.Contains(text, "nothing was written") || !strings.Contains(text, s.Path()+"-lock") {
		t.Errorf("got error %v, expected one that says that nothing was written and names the -lock file", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.DeleteCAS(cancelled, idOf("absent"), "") }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("got error %v, expected the context's error alone, because nothing was sent", err)
	}
	unlockFile(t, file)
	fixture.Write(t, s, resource("written", 1))
	if got := names(t, s); got != "written " {
		t.Errorf("the store has names %q", got)
	}
	lockAsOtherProcess(t, s) // the writer has released the lock
}

// The store's timeout bounds calls whose context has no deadline.
func TestTimeoutInQueue(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	lockAsOtherProcess(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout) // otherwise the store's timeout would bound the opening too
	defer cancel()
	shortTimeout, err := New(ctx, path, &Options{Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer shortTimeout.Close()
	if _, err := shortTimeout.WriteCAS(context.Background(), resource("a", 1)); !errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("got error %v, expected ErrInconsistent", err)
	}
}

// A store can be closed while another process holds the lock. Waiting callers get ErrClosed, and the pending lock
// request is released.
func TestCloseInQueue(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	other := open(t, path, nil)
	s, err := New(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := lockAsOtherProcess(t, other)
	failed := make(chan error, 1)
	go func() {
		_, err := s.WriteCAS(context.Background(), resource("a", 1))
		failed <- err
	}()
	fixture.Eventually(t, "a request in the queue", func() bool { return !s.handle.writer.queue.empty() })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("got error %v, expected ErrClosed", err)
	}
	unlockFile(t, file)
	lockAsOtherProcess(t, other)
	if got := names(t, other); got != "" {
		t.Errorf("the store has names %q", got)
	}
}

// The writer has notified all processes and released the lock before a caller gets its result. Otherwise a process whose CPUs
// are busy would hold the lock until the writer runs again.
func TestLockIsFreeAfterWrite(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	file, err := os.OpenFile(s.handle.lockFile.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unlockFile(t, file)
	for n := range int64(20) {
		fixture.Write(t, s, resource(fmt.Sprint("r", n), n))
		if taken, err := tryLock(file); !taken || err != nil {
			t.Fatalf("the writer still holds the lock after write %d, error %v", n, err)
		}
		if newest, known := s.handle.lockFile.lastNotified(); !known || newest.seq != n+1 {
			t.Fatalf("the last notification is of row %d, expected %d", newest.seq, n+1)
		}
		if err := unlock(file); err != nil {
			t.Fatal(err)
		}
	}
}

// Another program may hold a write transaction without the lock of the lock file.
func TestOtherProgramHoldsTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	db := openDirect(t, s.Path())
	execSQL(t, db, "BEGIN IMMEDIATE")
	written := make(chan error, 1)
	go func() {
		_, err := s.WriteCAS(context.Background(), resource("waiting", 1))
		written <- err
	}()
	fixture.Eventually(t, "a writer that has found the transaction", s.handle.writer.busy.Load)
	ctx := fixture.CallTimeout(t.Context(), t, time.Second/2)
	if _, err := s.WriteCAS(ctx, resource("timed-out", 1)); !errors.Is(err, storage.ErrInconsistent) || !strings.Contains(err.Error(), "nothing was written, because another program") {
		t.Fatalf("got error %v, expected ErrInconsistent and that another program holds a transaction", err)
	}
	if got := names(t, s); got != "" {
		t.Errorf("the store has names %q", got)
	}
	execSQL(t, db, "ROLLBACK")
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if got := names(t, s); got != "waiting " {
		t.Errorf("the store has names %q", got)
	}
}

// A caller whose deadline passes during its write gets a correct answer in time.
func TestDeadlinesUnderLoad(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			name := fmt.Sprint("r", i)
			for n := int64(1); n <= 50; n++ {
				res := resource(name, n)
				old, err := s.Read(t.Context(), storage.StrongConsistency, res.Id)
				if err == nil {
					res.Version = old.Version
				} else if !errors.Is(err, storage.ErrNotFound) {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*20*time.Microsecond)
				out, err := s.WriteCAS(ctx, res)
				cancel()
				switch {
				case err == nil:
					got, err := s.Read(t.Context(), storage.StrongConsistency, res.Id)
					if err != nil || got.Version != out.Version {
						t.Errorf("the read after an acknowledged write returned %v, error %v", got, err)
					}
				case errors.Is(err, context.DeadlineExceeded):
				case errors.Is(err, storage.ErrCASFailure):
					// The previous write timed out and took effect after the read.
				default:
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

func TestQueue(t *testing.T) {
	t.Parallel()
	q := queue{wake: make(chan struct{}, 1)}
	big := make([]byte, batchBytes/2+1)
	var all []*request
	for i := range batchChanges + 3 {
		r := &request{mutations: make([]mutation, 1)}
		if i < 3 {
			r.mutations[0].data = big
		}
		all = append(all, r)
		if err := q.put(r); err != nil {
			t.Fatal(err)
		}
	}
	q.withdraw(all[1])
	if got := q.drain(nil); len(got) != 1 || got[0] != all[0] {
		t.Errorf("the first batch has %d requests, expected only the first large one", len(got))
	}
	if got := q.drain(nil); len(got) != batchChanges || got[0] != all[2] || got[1] != all[3] {
		t.Errorf("the second batch has %d requests, expected %d from the third on", len(got), batchChanges)
	}
	if got := q.drain(nil); len(got) != 1 || !q.empty() {
		t.Errorf("the last batch has %d requests, expected 1", len(got))
	}
	q.withdraw(all[0])
	if rest := q.close(); len(rest) != 0 {
		t.Errorf("the closed queue has %d requests, expected none", len(rest))
	}
	if err := q.put(all[0]); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("got error %v, expected ErrClosed", err)
	}
}
