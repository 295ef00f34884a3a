package postgres

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ownChange is a change of a run's own handle, of so many bytes or a few more.
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

// TestPublishedIsKnownBefore looks, from inside the feed's log, at what a page of history takes for final: a watch that has read such
// a page goes on behind what is in the log at that moment, so the page has to hold all of it.
func TestPublishedIsKnownBefore(t *testing.T) {
	t.Parallel()
	r := &run{source: &source{}, at: position{revision: 7}}
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

// TestOwnChangesThatWaitAreBounded hands changes over that come after one that never comes, as while a commit stalls, or while polls
// fail and writes do not. The feed must not keep them all.
func TestOwnChangesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	r := &run{source: &source{}, in: new(currentInbox).open(), at: position{revision: 7}, publish: func([]*event, position) {
		t.Error("published behind a gap")
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
