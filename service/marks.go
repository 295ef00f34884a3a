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

// The keys of the metadata by which a deletion is deferred.
const (
	// deletionTimestampKey is the time at which the resource was marked for deletion, as RFC 3339 has it.
	deletionTimestampKey = "deletionTimestamp"
	// finalizersKey are names, with spaces between them, of who has to do something before the resource is deleted.
	finalizersKey = "finalizers"
)

// hasDeletionMark reports whether a resource is hasDeletionMark for deletion.
func hasDeletionMark(res *resourcepb.Resource) bool {
	_, ok := res.GetMetadata()[deletionTimestampKey]
	return ok
}

// finalizersOf returns the finalizers of a resource, sorted, each once.
func finalizersOf(res *resourcepb.Resource) []string {
	names := strings.Fields(res.GetMetadata()[finalizersKey])
	slices.Sort(names)
	return slices.Compact(names)
}

// deletionStep is what a write does to bring a deletion on.
type deletionStep int

const (
	noStep       deletionStep = iota
	stepMark                  // it sets the mark, and changes nothing else
	stepFinalize              // it takes finalizers from a marked resource, but not all
	stepDelete                // it takes the last finalizer from a marked resource, which is thereby deleted
)

// checkMarks refuses an update that is not allowed because of the marks of a deletion, and says what it does to bring a deletion on.
// next has the version, the owner and the status of the stored resource where it brings none.
func checkMarks(stored, next *resourcepb.Resource) (deletionStep, error) {
	was, is := stored.GetMetadata()[deletionTimestampKey], next.GetMetadata()[deletionTimestampKey]
	switch {
	case !hasDeletionMark(stored) && !hasDeletionMark(next):
		return noStep, nil
	case !hasDeletionMark(stored):
		if _, err := time.Parse(time.RFC3339, is); err != nil {
			return noStep, invalid("metadata.%s invalid: expected a time as RFC 3339 has it, got %.80q", deletionTimestampKey, is)
		}
		if !sameExcept(stored, next, deletionTimestampKey) {
			return noStep, invalid("metadata.%s has to be the only change of the write that sets it", deletionTimestampKey)
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

// The size that all backends take unless they are told otherwise, and what a resource with finalizers leaves of it: the mark, as part of
// the metadata, takes 43 bytes.
const (
	maxSize  = 1 << 20
	markSize = 64
)

// checkSize refuses a resource that could not be marked for deletion, and so not be deleted, because it would be too large then.
func checkSize(res *resourcepb.Resource) error {
	if len(finalizersOf(res)) == 0 || hasDeletionMark(res) {
		return nil
	}
	unversioned := copyOf(res)
	unversioned.Version = ""
	if size := proto.Size(unversioned); size > maxSize-markSize {
		return fmt.Errorf("%w: the resource has %d bytes, the most for one with finalizers is %d", storage.ErrTooLarge, size, maxSize-markSize)
	}
	return nil
}

// subset reports whether all of some are in all, both sorted.
func subset(some, all []string) bool {
	for _, name := range some {
		if _, ok := slices.BinarySearch(all, name); !ok {
			return false
		}
	}
	return true
}

// sameExcept reports whether two resources have the sameExcept group version, data and metadata, but for one key of the metadata.
func sameExcept(a, b *resourcepb.Resource, but string) bool {
	without := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		delete(m, but)
		return m
	}
	return a.GetId().GetType().GetGroupVersion() == b.GetId().GetType().GetGroupVersion() &&
		maps.Equal(without(a.GetMetadata()), without(b.GetMetadata())) && proto.Equal(a.GetData(), b.GetData())
}
