package feed

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// unsteady is a snapshot whose reads have given results in turn: an error, or nil for the next resource. A nil function blocks until the end of
// the context.
type unsteady struct {
	driver.Snapshot
	results []func() error
}

func (u *unsteady) Next(ctx context.Context) (*resourcepb.Resource, error) {
	if len(u.results) == 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return u.Snapshot.Next(ctx)
	}
	result := u.results[0]
	u.results = u.results[1:]
	if result == nil {
		<-ctx.Done()
		return nil, fmt.Errorf("the database does not answer: %w", ctx.Err())
	}
	return nil, result()
}

func watchSnapshot(t *testing.T, l *line, s driver.Snapshot) storage.Watch {
	t.Helper()
	f := New(l, Options[int]{})
	t.Cleanup(f.Close)
	m, err := f.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f.Watch(m, all, s, len(l.events))
}

// A snapshot survives the deadline of a call. Its failure ends the watch.
func TestSnapshotReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		l.append("a")
		broken := errors.New("broken")
		w := watchSnapshot(t, l, &unsteady{SliceSnapshot([]*resourcepb.Resource{l.events[0].Resource}), []func() error{nil}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.Next(ctx); err != context.DeadlineExceeded {
			t.Fatalf("got %v, expected the context's error", err)
		}
		wantVersion(t, w, 1)
		if next(t, w).GetEndOfSnapshot() == nil {
			t.Error("expected the end of the snapshot")
		}
		w = watchSnapshot(t, l, &unsteady{SliceSnapshot(nil), []func() error{func() error { return broken }}})
		for range 2 {
			if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, broken) {
				t.Errorf("got %v, expected the end of the watch with the cause", err)
			}
		}
	})
}

// A watch skips the damaged resources of the types that its reader does not use, and returns all others.
func TestSkipDamage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, isSkipped := range []bool{true, false} {
			l := newLine()
			damage := &storage.DamagedError{ID: &resourcepb.ID{Type: &resourcepb.Type{Group: "g", Kind: "a"}}, Err: errors.New("damaged")}
			w := watchSnapshot(t, l, &unsteady{SliceSnapshot(nil), []func() error{func() error { return damage }}})
			w.(*watch[int]).SkipDamage(func(of storage.UnversionedType) bool {
				return isSkipped && of == storage.UnversionedType{Group: "g", Kind: "a"}
			})
			if isSkipped {
				if next(t, w).GetEndOfSnapshot() == nil {
					t.Fatal("expected the end of the snapshot")
				}
			} else if _, err := w.Next(t.Context()); !errors.As(err, new(*storage.DamagedError)) {
				t.Fatalf("got %v, expected a DamagedError", err)
			} else {
				continue
			}
			wantVersion(t, w, l.append("a"))
			l.appendDamage("a", damage)
			wantVersion(t, w, l.append("b"))
			l.appendDamage("b", damage)
			if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrCompacted) || !errors.As(err, new(*storage.DamagedError)) {
				t.Errorf("got %v, expected ErrCompacted and the damage", err)
			}
		}
	})
}

// A Next whose context ends while a damaged resource arrives does not pass over the damage.
func TestDamageAtTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		damage := &storage.DamagedError{ID: &resourcepb.ID{Type: &resourcepb.Type{Group: "g", Kind: "a"}}, Err: errors.New("damaged")}
		w := watchSnapshot(t, newLine(), &unsteady{SliceSnapshot(nil), []func() error{func() error { cancel(); return damage }}})
		defer w.Close()
		_, err := w.Next(ctx)
		if errors.Is(err, context.Canceled) {
			_, err = w.Next(t.Context())
		}
		if damaged := (*storage.DamagedError)(nil); !errors.As(err, &damaged) {
			t.Errorf("got %v, expected the damage", err)
		}
	})
}
