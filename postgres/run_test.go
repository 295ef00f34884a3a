package postgres

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ownChange is a change of a run's own handle, of about this size in bytes.
func ownChange(t *testing.T, revision int64, size int) change {
	t.Helper()
	id := &resourcepb.ID{
		Uid: "uid", Name: "name", Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "Kind"},
		Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"},
	}
	data, err := codec.Encode(&resourcepb.Resource{Id: id, Generation: string(make([]byte, size))})
	if err != nil {
		t.Fatal(err)
	}
	return change{at: position{revision: revision}, kind: kindWrite, key: key.Of(id).Bytes(), version: make([]byte, versionSize), data: data}
}

// TestPublishedIsKnownBefore checks, from inside the feed's log, how far a page of history would be final. A watch that has read
// such a page continues after the end of the log at that moment, so the page must contain all of it.
func TestPublishedIsKnownBefore(t *testing.T) {
	t.Parallel()
	r := &run{source: &source{database: &database{}}, at: position{revision: 7}}
	r.publish = func(_ []*event, end position) {
		if known := r.feedPosition.Load(); known == nil || known.revision < end.revision {
			t.Errorf("%d is in the log, and a page of history would end at %d", end.revision, known)
		}
	}
	if err := r.add(&page{changes: []change{ownChange(t, 8, 1)}}); err != nil {
		t.Fatal(err)
	}
	if r.at.revision != 8 {
		t.Errorf("the run is at %d", r.at.revision)
	}
}

// TestOwnChangesThatWaitAreBounded hands over changes that follow a missing one, as during a stalled commit, or when polls fail and
// writes do not. The feed must not keep all of them.
func TestOwnChangesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	r := &run{source: &source{}, in: new(currentInbox).open(), at: position{revision: 7}, publish: func([]*event, position) {
		t.Error("published after a gap")
	}}
	for revision := int64(9); revision < 9+64; revision++ {
		r.in.add([]change{ownChange(t, revision, 1<<20)}, false)
		if err := r.await(t.Context(), 0, make(chan time.Time)); err != nil {
			t.Fatal(err)
		}
		if kept := weight(r.localChanges); kept > inboxBytes {
			t.Fatalf("%d bytes wait", kept)
		}
	}
}
