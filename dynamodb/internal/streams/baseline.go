package streams

import (
	"encoding/binary"
	"sort"
	"sync"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/spill"
)

// Baseline is what a snapshot showed of each key: the count of its state, those of tombstones among them. A record of that state, or
// of one before it, may come after the position from which the stream is followed, and is no news. It is needed until the reader
// has proven that it has passed the snapshot's end: then no such record can come any more.
//
// It is in the order of keys, in a temporary file where it is large; of every few keys the place is in memory.
type Baseline struct {
	until uint64 // the proof after which it is not needed

	mu        sync.Mutex
	rows      *spill.Spool
	positions []baselinePosition
	count     int
}

type baselinePosition struct {
	key    string
	offset int64
}

const (
	baselineMemory = 256 << 10 // of rows in memory
	baselineEvery  = 64        // rows between two places
)

// NewBaseline returns an empty baseline.
func NewBaseline() *Baseline { return &Baseline{rows: spill.New(baselineMemory)} }

// Add notes a key, which comes after all that were added before.
func (b *Baseline) Add(k key.Key, count uint64) error {
	name := k.Bytes()
	if b.count%baselineEvery == 0 {
		b.positions = append(b.positions, baselinePosition{string(name), b.rows.Size()})
	}
	b.count++
	return b.rows.Append(append(binary.BigEndian.AppendUint64(nil, count), name...))
}

// Seal ends the adding.
func (b *Baseline) Seal() error { return b.rows.Seal() }

// has reports whether the snapshot showed this state of a key or a later one.
func (b *Baseline) has(k key.Key, count uint64) bool {
	if b == nil {
		return false
	}
	name := string(k.Bytes())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := sort.Search(len(b.positions), func(i int) bool { return b.positions[i].key > name })
	if i == 0 {
		return false
	}
	rows := b.rows.Read(b.positions[i-1].offset)
	for range baselineEvery {
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

// Close frees what b holds.
func (b *Baseline) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.positions = nil
	_ = b.rows.Close()
}
