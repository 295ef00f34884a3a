package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/client"
	"github.com/ashlar-dev/storage/resourcepb"
)

// attempts bounds how often a write is made again because others interfere. Each time one of them got through.
const attempts = 1000

// errSkipped marks what was not begun because something else had failed.
var errSkipped = errors.New("skipped")

func newULID() string { return ulid.Make().String() }

// apply writes the set: owners first, several at once, and prints what became of each in the order of the files. After a
// failure nothing more is begun.
func (s *set) apply(ctx context.Context, backend storage.Backend, out io.Writer) error {
	slots := make(chan struct{}, concurrency)
	failed := make(chan struct{})
	var once sync.Once
	for _, it := range s.items {
		go func() {
			defer close(it.done)
			if it.err = it.wait(slots, failed); it.err != nil {
				return
			}
			defer func() { <-slots }()
			it.outcome, it.id, it.err = it.write(ctx, backend)
			if errors.Is(it.err, storage.ErrInvalid) {
				it.err = failedf("%w", it.err) // a mistake in the document, which a server finds, and not in the command line
			}
			if it.err != nil {
				once.Do(func() { close(failed) })
			}
		}()
	}
	var first error
	written := 0
	for _, it := range s.items {
		<-it.done
		switch {
		case it.err == nil:
			written++
			if _, err := fmt.Fprintf(out, "%s %s\n", described(it.id), it.outcome); err != nil && first == nil {
				first = err
				once.Do(func() { close(failed) })
			}
		case first == nil && !errors.Is(it.err, errSkipped):
			first = fmt.Errorf("%v: %s: %w", it.object.Where, described(it.object.Resource.GetId()), it.err)
		}
	}
	if first != nil && len(s.items) > 1 {
		return fmt.Errorf("%w (%d of %d were applied; it is safe to apply all again)", first, written, len(s.items))
	}
	return first
}

// wait waits for the owner and for a free slot.
func (it *item) wait(slots chan<- struct{}, failed <-chan struct{}) error {
	if it.parent != nil {
		<-it.parent.done
		if it.parent.err != nil {
			return errSkipped
		}
		// A server gives new resources uids of its own, whatever the documents say.
		if it.owner.Uid == "" || it.owner.Uid == it.parent.object.Resource.GetId().GetUid() {
			it.owner.Uid = it.parent.id.GetUid()
		}
	}
	select {
	case <-failed:
		return errSkipped
	default:
	}
	select {
	case <-failed:
		return errSkipped
	case slots <- struct{}{}:
		return nil
	}
}

// write creates or updates the resource, and begins again when others interfere.
func (it *item) write(ctx context.Context, backend storage.Backend) (string, *resourcepb.ID, error) {
	for attempt := 1; ; attempt++ {
		outcome, id, err := it.tryWrite(ctx, backend)
		interfered := errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)
		var final *conflictError
		if err == nil || !interfered || errors.As(err, &final) || attempt == attempts {
			return outcome, id, err
		}
	}
}

// conflictError is a conflict with what the document demands, which trying again cannot solve.
type conflictError struct{ err error }

func (e *conflictError) Error() string { return e.err.Error() }
func (e *conflictError) Unwrap() error { return e.err }

func (it *item) tryWrite(ctx context.Context, backend storage.Backend) (string, *resourcepb.ID, error) {
	want := proto.CloneOf(it.object.Resource)
	uid, version := want.Id.Uid, want.Version
	want.Owner = it.owner
	anyUID := proto.CloneOf(want.Id)
	anyUID.Uid = ""
	stored, err := read(ctx, backend, anyUID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		want.Version = ""
		if uid == "" {
			want.Id.Uid = newULID()
		}
		if want.Generation == "" {
			want.Generation = newULID()
		}
		created, err := backend.WriteCAS(ctx, want)
		if ofServer(backend) && len(want.GetStatus()) > 0 {
			return "created, without its status", created.GetId(), err
		}
		return "created", created.GetId(), err
	case err != nil:
		return "", nil, err
	case uid != "" && uid != stored.GetId().GetUid():
		return "", nil, &conflictError{fmt.Errorf("%w: stored is %q, the document says %q", storage.ErrWrongUid, stored.GetId().GetUid(), uid)}
	case version != "" && version != stored.GetVersion():
		return "", nil, &conflictError{fmt.Errorf("%w: stored is %q, the document says %q", storage.ErrCASFailure, stored.GetVersion(), version)}
	}
	if ofServer(backend) {
		client.CarryOver(want, stored)
	}
	if sameContent(want, stored) {
		return "unchanged", stored.GetId(), nil
	}
	want.Id.Uid, want.Version, want.Status = stored.GetId().GetUid(), stored.GetVersion(), stored.GetStatus()
	want.Generation = newULID()
	_, err = backend.WriteCAS(ctx, want)
	if err != nil && version != "" && errors.Is(err, storage.ErrCASFailure) {
		err = &conflictError{err}
	}
	return "updated", want.Id, err
}

// sameContent compares what apply decides about. Versions, generations, statuses and uids are not among it.
func sameContent(want, stored *resourcepb.Resource) bool {
	a := &resourcepb.Resource{Owner: want.GetOwner(), Metadata: want.GetMetadata()}
	b := &resourcepb.Resource{Owner: stored.GetOwner(), Metadata: stored.GetMetadata()}
	return want.GetId().GetType().GetGroupVersion() == stored.GetId().GetType().GetGroupVersion() &&
		proto.Equal(a, b) && samePayload(want.GetData(), stored.GetData())
}

// samePayload compares payloads by what they mean, because the same message can be written in several ways.
func samePayload(a, b *anypb.Any) bool {
	if a.GetTypeUrl() != b.GetTypeUrl() {
		return false
	}
	if bytes.Equal(a.GetValue(), b.GetValue()) {
		return true
	}
	ma, errA := a.UnmarshalNew()
	mb, errB := b.UnmarshalNew()
	return errA == nil && errB == nil && proto.Equal(ma, mb)
}
