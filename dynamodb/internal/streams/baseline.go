package streams

import (
	"encoding/binary"
	"sort"
	"sync"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/spill"
)

// Baseline contains the count of the state of each key in a snapshot, including tombstones. A record of that state, or of an
// earlier one, may come after the position where reading starts, and must be skipped. The baseline is needed until the reader has
// proven that it has passed the snapshot's end: then no such record can follow.
//
// It is sorted by key and stored in a temporary file if it is large; memory holds the offset of every 64th key.
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
	baselineEvery  = 64        // rows between two offsets
)

// NewBaseline returns an empty baseline.
func NewBaseline() *Baseline { return &Baseline{rows: spill.New(baselineMemory)} }

// Add adds a key, which must follow all earlier ones.
func (b *Baseline) Add(k key.Key, count uint64) error {
	name := k.Bytes()
	if b.count%baselineEvery == 0 {
		b.positions = append(b.positions, baselinePosition{string(name), b.rows.Size()})
	}
	b.count++
	return b.rows.Append(append(binary.BigEndian.AppendUint64(nil, count), name...))
}

// Seal ends the additions.
func (b *Baseline) Seal() error { return b.rows.Seal() }

// has reports whether the snapshot contained this state of a key or a later one.
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
			return false // no more rows; reads of an unlinked file do not fail otherwise
		}
		if string(row[8:]) == name {
			return count <= binary.BigEndian.Uint64(row)
		}
	}
	return false
}

// Close releases the storage of b.
func (b *Baseline) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.positions = nil
	_ = b.rows.Close()
}
