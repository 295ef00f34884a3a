package dynamodb

import (
	"encoding/binary"
	"sort"
	"sync"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/spool"
)

// shown is what a snapshot showed of each key: the count of its state, those of tombstones among them. A record of that state, or
// of one before it, may come after the position from which the stream is followed, and is no news. It is needed until the reader
// has proven that it has passed the snapshot's end: then no such record can come any more.
//
// It is in the order of keys, in a temporary file where it is large; of every few keys the place is in memory.
type shown struct {
	until uint64 // the proof after which it is not needed

	mu     sync.Mutex
	rows   *spool.Spool
	places []shownPlace
	count  int
}

type shownPlace struct {
	key    string
	offset int64
}

const (
	shownMemory = 256 << 10 // of rows in memory
	shownEvery  = 64        // rows between two places
)

func newShown() *shown { return &shown{rows: spool.New(shownMemory)} }

// add notes a key, which comes after all that were added before.
func (s *shown) add(k key.Key, count uint64) error {
	name := k.Bytes()
	if s.count%shownEvery == 0 {
		s.places = append(s.places, shownPlace{string(name), s.rows.Size()})
	}
	s.count++
	return s.rows.Append(append(binary.BigEndian.AppendUint64(nil, count), name...))
}

// has reports whether the snapshot showed this state of a key or a later one.
func (s *shown) has(k key.Key, count uint64) bool {
	if s == nil {
		return false
	}
	name := string(k.Bytes())
	s.mu.Lock()
	defer s.mu.Unlock()
	i := sort.Search(len(s.places), func(i int) bool { return s.places[i].key > name })
	if i == 0 {
		return false
	}
	rows := s.rows.Read(s.places[i-1].offset)
	for range shownEvery {
		row, err := rows.Next()
		if err != nil || string(row[8:]) > name {
			return false // there are no more rows; files without a name do not fail otherwise
		}
		if string(row[8:]) == name {
			return count <= binary.BigEndian.Uint64(row)
		}
	}
	return false
}

// drop frees what s holds.
func (s *shown) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = nil
	_ = s.rows.Close()
}
