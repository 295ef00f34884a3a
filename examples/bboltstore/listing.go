package bboltstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// listing is a copy of the rows that match a filter, from one transaction. A transaction that stays open for a slow client would
// keep bbolt from reusing pages and, eventually, from writing.
type listing struct {
	at     uint64
	rows   []driver.Version
	expiry *time.Timer // of a paged listing
}

// Next implements driver.Snapshot.
func (l *listing) Next(context.Context) (*resourcepb.Resource, error) {
	if len(l.rows) == 0 {
		return nil, io.EOF
	}
	v := l.rows[0]
	l.rows[0], l.rows = driver.Version{}, l.rows[1:]
	return v.Decode()
}

// Close implements driver.Snapshot.
func (l *listing) Close() { l.rows = nil }

// listings contains the unfinished paged listings, by random names.
type listings struct {
	mu   sync.Mutex
	open map[[16]byte]*listing
}

// keep stores a listing until its token expires after its last use.
func (s *listings) keep(name [16]byte, l *listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.expiry != nil {
		l.expiry.Reset(driver.TokenLifetime)
		return
	}
	l.expiry = time.AfterFunc(driver.TokenLifetime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, name)
	})
	s.open[name] = l
}

// close releases all listings.
func (s *listings) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.open {
		l.expiry.Stop()
	}
	clear(s.open)
}

// find returns the listing of a token, and the first row of its page.
func (s *listings) find(name *[16]byte, token []byte) (*listing, int, error) {
	row, n := binary.Uvarint(token[copy(name[:], token):])
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.open[*name]
	switch {
	case n <= 0:
		return nil, 0, fmt.Errorf("%w: malformed continue token", storage.ErrInvalid)
	case l == nil:
		return nil, 0, fmt.Errorf("%w: the listing has expired or belongs to another handle", storage.ErrCompacted)
	case row >= uint64(len(l.rows)):
		return nil, 0, fmt.Errorf("%w: malformed continue token", storage.ErrInvalid)
	}
	return l, int(row), nil
}
