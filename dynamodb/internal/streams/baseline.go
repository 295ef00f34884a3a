package streams

import (
	"encoding/binary"
	"sort"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/spill"
)

// Baseline contains the count of the state of each key in a snapshot, including tombstones. It makes the changes after a snapshot
// exact without a proof that the reader has passed the snapshot's end: the reader opens the shards, then a strong scan begins, and a
// later record is skipped if the scan has seen its state or a later one.
//
// A record of a key without even a tombstone belongs to a state before the scan or after it. The counts tell which: a count is at most
// 20 minutes older than the acceptance of its write, and a key without a tombstone was deleted an hour or more before the scan
// began. So an old record has a count below that of an hour before the scan, and a new one has a count above that of 20 minutes before.
//
// The baseline is needed until the reader has proven that it has passed the snapshot's end: then no such record can follow.
//
// It is sorted by key and stored in a temporary file if it is large; memory holds the offset of every 64th key.
type Baseline struct {
	until     uint64    // the proof after which it is not needed
	scanEnded time.Time // by AWS's clock
	oldest    uint64    // the lowest count of a state after the scan, of a key that the scan did not find

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

// latest is a bound between the counts of states before a scan and after it, before the scan's begin.
const latest = 40 * time.Minute

// NewBaseline returns an empty baseline of a scan that begins now, by AWS's clock.
func NewBaseline(now time.Time) *Baseline {
	return &Baseline{rows: spill.New(baselineMemory), oldest: uint64(now.Add(-latest).UnixMilli())}
}

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

// has reports whether the snapshot contained this state of a key or a later one, or the key's deletion after it.
func (b *Baseline) has(k key.Key, count uint64) bool {
	if b == nil {
		return false
	}
	name := string(k.Bytes())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := sort.Search(len(b.positions), func(i int) bool { return b.positions[i].key > name })
	if i == 0 {
		return count < b.oldest
	}
	rows := b.rows.Read(b.positions[i-1].offset)
	for range baselineEvery {
		row, err := rows.Next()
		if err != nil || string(row[8:]) > name {
			break // no more rows; reads of an unlinked file do not fail otherwise
		}
		if string(row[8:]) == name {
			return count <= binary.BigEndian.Uint64(row)
		}
	}
	return count < b.oldest
}

// Close releases the storage of b.
func (b *Baseline) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.positions = nil
	_ = b.rows.Close()
}
