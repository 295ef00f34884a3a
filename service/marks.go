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
	// deletionTimestamp is the time at which the resource was marked for deletion, as RFC 3339 has it.
	deletionTimestamp = "deletionTimestamp"
	// finalizers are names, with spaces between them, of who has to do something before the resource is deleted.
	finalizers = "finalizers"
)

// marked reports whether a resource is marked for deletion.
func marked(res *resourcepb.Resource) bool {
	_, ok := res.GetMetadata()[deletionTimestamp]
	return ok
}

// finalizersOf returns the finalizers of a resource, sorted, each once.
func finalizersOf(res *resourcepb.Resource) []string {
	names := strings.Fields(res.GetMetadata()[finalizers])
	slices.Sort(names)
	return slices.Compact(names)
}

// step is what a write does to bring a deletion on.
type step int

const (
	nothing       step = iota
	marking            // it sets the mark, and changes nothing else
	finalizing         // it takes finalizers from a marked resource, but not all
	lastFinalizer      // it takes the last finalizer from a marked resource, which is thereby deleted
)

// checkMarks refuses an update that is not allowed because of the marks of a deletion, and says what it does to bring a deletion on.
// next has the version, the owner and the status of the stored resource where it brings none.
func checkMarks(stored, next *resourcepb.Resource) (step, error) {
	was, is := stored.GetMetadata()[deletionTimestamp], next.GetMetadata()[deletionTimestamp]
	switch {
	case !marked(stored) && !marked(next):
		return nothing, nil
	case !marked(stored):
		if _, err := time.Parse(time.RFC3339, is); err != nil {
			return nothing, invalid("metadata.%s invalid: expected a time as RFC 3339 has it, got %.80q", deletionTimestamp, is)
		}
		if !same(stored, next, deletionTimestamp) {
			return nothing, invalid("metadata.%s has to be the only change of the write that sets it", deletionTimestamp)
		}
		return marking, nil
	case !marked(next):
		return nothing, invalid("metadata.%s cannot be removed", deletionTimestamp)
	case was != is:
		return nothing, invalid("metadata.%s cannot be changed", deletionTimestamp)
	}
	had, has := finalizersOf(stored), finalizersOf(next)
	switch {
	case len(had) == 0:
		return nothing, invalid("the resource is marked for deletion and has no finalizers: it can only be deleted")
	case len(has) >= len(had) || !subset(has, had):
		return nothing, invalid("expected at least one finalizer to be removed")
	case !same(stored, next, finalizers):
		return nothing, invalid("the resource is marked for deletion: only finalizers can be removed")
	case len(has) == 0:
		return lastFinalizer, nil
	}
	next.Metadata = maps.Clone(next.Metadata)
	next.Metadata[finalizers] = strings.Join(has, " ")
	return finalizing, nil
}

// The size that all backends take unless they are told otherwise, and what a resource with finalizers leaves of it: the mark, as part of
// the metadata, takes 43 bytes.
const (
	maxSize  = 1 << 20
	markSize = 64
)

// checkRoom refuses a resource that could not be marked for deletion, and so not be deleted, because it would be too large then.
func checkRoom(res *resourcepb.Resource) error {
	if len(finalizersOf(res)) == 0 || marked(res) {
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

// same reports whether two resources have the same group version, data and metadata, but for one key of the metadata.
func same(a, b *resourcepb.Resource, but string) bool {
	without := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		delete(m, but)
		return m
	}
	return a.GetId().GetType().GetGroupVersion() == b.GetId().GetType().GetGroupVersion() &&
		maps.Equal(without(a.GetMetadata()), without(b.GetMetadata())) && proto.Equal(a.GetData(), b.GetData())
}
