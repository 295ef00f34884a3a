package service

import (
	"hash/maphash"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// idSet is a set of ids. It stores a 128-bit hash of each key, with random seeds, so that clients cannot choose colliding keys. A nil set is
// empty, and adding to it has no effect.
type idSet struct {
	seeds [2]maphash.Seed
	keys  map[[2]uint64]struct{}
}

func newIDSet() *idSet {
	return &idSet{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, keys: map[[2]uint64]struct{}{}}
}

func (s *idSet) hash(id *resourcepb.ID) [2]uint64 {
	var buffer [256]byte
	k := key.Of(id).Append(buffer[:0])
	return [2]uint64{maphash.Bytes(s.seeds[0], k), maphash.Bytes(s.seeds[1], k)}
}

func (s *idSet) add(id *resourcepb.ID) {
	if s != nil {
		s.keys[s.hash(id)] = struct{}{}
	}
}

func (s *idSet) remove(id *resourcepb.ID) {
	if s != nil {
		delete(s.keys, s.hash(id))
	}
}

func (s *idSet) has(id *resourcepb.ID) bool {
	if s == nil {
		return false
	}
	_, ok := s.keys[s.hash(id)]
	return ok
}
