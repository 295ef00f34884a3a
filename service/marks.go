package service

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The metadata keys of a deferred deletion.
const (
	// deletionTimestampKey has the time when the resource was marked for deletion, in RFC 3339 format.
	deletionTimestampKey = "deletionTimestamp"
	// finalizersKey has names separated by spaces, one for each party that must act before the resource is deleted.
	finalizersKey = "finalizers"
)

// hasDeletionMark reports whether a resource is marked for deletion.
func hasDeletionMark(res *resourcepb.Resource) bool {
	_, ok := res.GetMetadata()[deletionTimestampKey]
	return ok
}

// finalizersOf returns the finalizers of a resource, sorted and without duplicates.
func finalizersOf(res *resourcepb.Resource) []string {
	names := strings.Fields(res.GetMetadata()[finalizersKey])
	slices.Sort(names)
	return slices.Compact(names)
}

// deletionStep is the step of a deletion that a write takes.
type deletionStep int

const (
	noStep       deletionStep = iota
	stepMark                  // sets the mark and changes nothing else
	stepFinalize              // removes some finalizers from a resource with a mark
	stepDelete                // removes the last finalizer from a resource with a mark, which deletes it
)

// checkMarks rejects an update that the deletion mark does not permit, and returns the deletion step that the update takes. next has the version,
// owner and status of the stored resource unless the request sets them.
func checkMarks(stored, next *resourcepb.Resource) (deletionStep, error) {
	was, is := stored.GetMetadata()[deletionTimestampKey], next.GetMetadata()[deletionTimestampKey]
	switch {
	case !hasDeletionMark(stored) && !hasDeletionMark(next):
		return noStep, nil
	case !hasDeletionMark(stored):
		if _, err := time.Parse(time.RFC3339, is); err != nil {
			return noStep, invalid("metadata.%s invalid: expected a time in RFC 3339 format, got %.80q", deletionTimestampKey, is)
		}
		if !sameExcept(stored, next, deletionTimestampKey) {
			return noStep, invalid("metadata.%s must be the only change of the write that sets it", deletionTimestampKey)
		}
		return stepMark, nil
	case !hasDeletionMark(next):
		return noStep, invalid("metadata.%s cannot be removed", deletionTimestampKey)
	case was != is:
		return noStep, invalid("metadata.%s cannot be changed", deletionTimestampKey)
	}
	had, has := finalizersOf(stored), finalizersOf(next)
	switch {
	case len(had) == 0:
		return noStep, invalid("the resource is marked for deletion and has no finalizers: it can only be deleted")
	case len(has) >= len(had) || !subset(has, had):
		return noStep, invalid("expected at least one finalizer to be removed")
	case !sameExcept(stored, next, finalizersKey):
		return noStep, invalid("the resource is marked for deletion: only finalizers can be removed")
	case len(has) == 0:
		return stepDelete, nil
	}
	next.Metadata = maps.Clone(next.Metadata)
	next.Metadata[finalizersKey] = strings.Join(has, " ")
	return stepFinalize, nil
}

// maxSize is the default maximum size of a resource in all backends. A resource with finalizers must be markSize smaller: the deletion mark, as a
// part of the metadata, takes 43 bytes.
const (
	maxSize  = 1 << 20
	markSize = 64
)

// checkSize rejects a resource that would be too large with a deletion mark, and so could not be deleted.
func checkSize(res *resourcepb.Resource) error {
	if len(finalizersOf(res)) == 0 || hasDeletionMark(res) {
		return nil
	}
	unversioned := copyOf(res)
	unversioned.Version = ""
	if size := proto.Size(unversioned); size > maxSize-markSize {
		return fmt.Errorf("%w: the resource has %d bytes, the maximum with finalizers is %d", storage.ErrTooLarge, size, maxSize-markSize)
	}
	return nil
}

// subset reports whether all contains every name in some. Both are sorted.
func subset(some, all []string) bool {
	for _, name := range some {
		if _, ok := slices.BinarySearch(all, name); !ok {
			return false
		}
	}
	return true
}

// sameExcept reports whether two resources have the same group version, data and metadata, except for one key of the metadata.
func sameExcept(a, b *resourcepb.Resource, but string) bool {
	without := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		delete(m, but)
		return m
	}
	return a.GetId().GetType().GetGroupVersion() == b.GetId().GetType().GetGroupVersion() &&
		maps.Equal(without(a.GetMetadata()), without(b.GetMetadata())) && proto.Equal(a.GetData(), b.GetData())
}
