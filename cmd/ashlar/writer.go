package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/client"
)

// maxAttempts is the maximum number of attempts of a write with conflicts. Each conflict means that another write succeeded, so only a
// constantly written resource reaches it.
const maxAttempts = 1000

// errSkipped marks a resource that was not written because another write failed.
var errSkipped = errors.New("skipped")

func newULID() string { return ulid.Make().String() }

// wait waits until the owner is written and a slot is free. It returns errSkipped if the owner, or any other write, failed.
func (it *item) wait(slots chan<- struct{}, failed <-chan struct{}) error {
	if it.parent != nil {
		<-it.parent.resultCh
		if it.parent.err != nil {
			return errSkipped
		}
		// A server assigns its own uids to new resources, whatever the documents contain.
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

// write creates or updates the resource, and retries after conflicts.
func (it *item) write(ctx context.Context, backend storage.Backend) (string, *resourcepb.ID, error) {
	for attempt := 1; ; attempt++ {
		outcome, id, err := it.tryWrite(ctx, backend)
		conflict := errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)
		var final *conflictError
		if err == nil || !conflict || errors.As(err, &final) {
			return outcome, id, err
		}
		if attempt == maxAttempts {
			return outcome, id, fmt.Errorf("each of %d attempts met a concurrent write: %w", attempt, err)
		}
	}
}

// conflictError is a conflict with the version or uid in the document, which a retry cannot resolve.
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
		if isServer(backend) && len(want.GetStatus()) > 0 {
			return "created, without its status", created.GetId(), err
		}
		return "created", created.GetId(), err
	case err != nil:
		return "", nil, err
	case uid != "" && uid != stored.GetId().GetUid():
		return "", nil, &conflictError{fmt.Errorf("%w: the stored uid is %q, the document has %q", storage.ErrWrongUid, stored.GetId().GetUid(), uid)}
	case version != "" && version != stored.GetVersion():
		return "", nil, &conflictError{fmt.Errorf("%w: the stored version is %q, the document has %q", storage.ErrCASFailure, stored.GetVersion(), version)}
	}
	if isServer(backend) {
		client.KeepMarks(want, stored)
	}
	outcome := "updated"
	if want.Generation = newULID(); sameContent(want, stored) {
		if want.GetTtl() == nil {
			return "unchanged", stored.GetId(), nil
		}
		outcome, want.Generation = "renewed", stored.GetGeneration()
	}
	want.Id.Uid, want.Version, want.Status = stored.GetId().GetUid(), stored.GetVersion(), stored.GetStatus()
	_, err = backend.WriteCAS(ctx, want)
	if err != nil && version != "" && errors.Is(err, storage.ErrCASFailure) {
		err = &conflictError{err}
	}
	return outcome, want.Id, err
}

// sameContent compares the fields that apply sets. It ignores versions, generations, statuses and uids.
func sameContent(want, stored *resourcepb.Resource) bool {
	a := &resourcepb.Resource{Owner: want.GetOwner(), Metadata: want.GetMetadata(), Ttl: want.GetTtl()}
	b := &resourcepb.Resource{Owner: stored.GetOwner(), Metadata: stored.GetMetadata(), Ttl: stored.GetTtl()}
	return want.GetId().GetType().GetGroupVersion() == stored.GetId().GetType().GetGroupVersion() &&
		proto.Equal(a, b) && samePayload(want.GetData(), stored.GetData())
}

// samePayload compares payloads by meaning, because a message can be encoded in several ways.
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

// isServer reports whether a backend is a server, which may defer deletions and sets some fields itself.
func isServer(b storage.Backend) bool {
	_, ok := b.(*client.Backend)
	return ok
}

// markedForDeletion reports whether a server has marked a resource for deletion.
func markedForDeletion(b storage.Backend, res *resourcepb.Resource) bool {
	return isServer(b) && client.MarkedForDeletion(res)
}

// item is a resource to be applied.
type item struct {
	object *manifest.Object
	key    key.Key
	parent *item          // the owner, if it is in the set; it is written before
	owner  *resourcepb.ID // the owner; its uid is set once it is known

	resultCh chan struct{} // closed when the following fields are set
	outcome  string
	id       *resourcepb.ID
	err      error
}
