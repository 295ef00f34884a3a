package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/storetest"
)

// weighing notes how many bytes a driver says at once to have been stored before changes.
type weighing struct {
	*handle
	mu   sync.Mutex
	most int
}

func (w *weighing) Before(ctx context.Context, events []*event) ([]*driver.Version, error) {
	versions, err := w.handle.Before(ctx, events)
	size := 0
	for _, v := range versions {
		if v != nil {
			size += len(v.Data)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = max(w.most, size)
	return versions, err
}

// Close leaves the handle to the backend that has opened it.
func (*weighing) Close() error { return nil }

// What was stored before small changes may be large. A follower takes little of it into memory at a time, and leaves nothing out.
func TestStateBeforeSmallChangesIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := &weighing{handle: s.handle}
	b := driver.New(w, driver.Options[mark]{Timeout: storetest.Patience, Outage: time.Minute})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, ok := storage.As[storage.Historian](b)
	if !ok {
		t.Fatal("no historian")
	}
	const number, size = 100, 512 << 10
	var start int64
	written := make([]string, number)
	for round := range 2 {
		for i := range written {
			res := resource(fmt.Sprint(i), 1)
			if res.Version = written[i]; round == 0 {
				res.Data = &anypb.Any{TypeUrl: "example.com/Blob", Value: bytes.Repeat([]byte{'x'}, size)}
			}
			written[i] = storetest.Write(t, s, res).Version
		}
		if round == 0 {
			var err error
			if _, start, err = h.Revisions(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := h.Follow(storetest.Context(t), storage.Span{}, start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	for n := 0; n < number; {
		changes, _, err := f.Next(storetest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Before == nil {
				t.Fatalf("nothing was before change %d", n)
			}
			if c.Now.Resource.Id.Name != fmt.Sprint(n) || len(c.Before.Resource.GetData().GetValue()) != size {
				t.Fatalf("change %d is of %q, with %d bytes before", n, c.Now.Resource.Id.Name, len(c.Before.Resource.GetData().GetValue()))
			}
			n++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.most > 32*size {
		t.Errorf("%d bytes were read at once, expected %d at most", w.most, 32*size)
	}
}
