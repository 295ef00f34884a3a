// Package paging holds listings that go on, for databases where reading later pages from the same snapshot would need a
// transaction that stays open between them. The first page's query goes on, at once, to copy the rest out into a spool; the
// continue token finds it again.
//
// A token carries the name of the listing and an offset in it, so a page that is asked for twice is the same page twice. It
// works in the handle that made it only: elsewhere, and when the listing is gone, it is storage.ErrCompacted.
package paging

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/spool"
)

// Defaults of Options, and what adapters use for the listings they hand over.
const (
	DefaultTTL      = 6 * time.Minute
	DefaultListings = 128
	DefaultBytes    = 1 << 30

	// SpoolMemory is a good bound for what the spool of one listing keeps in memory.
	SpoolMemory = 1 << 20
	// PageLimit is the number of resources in a page for which no limit was given.
	PageLimit = 500
	// PageBytes is the number of bytes after which a page ends. A page holds at least one record.
	PageBytes = 4 << 20
)

// Options of a Shelf. The zero value of each field means its default.
type Options struct {
	TTL      time.Duration // how long a listing lives after its last use
	Listings int           // the most listings held; the one that was not used for longest makes room
	Bytes    int64         // the most bytes held, in memory and on disk together
}

// Shelf holds the listings of one opened backend.
type Shelf struct {
	store   cursor.StoreID
	options Options

	mu       sync.Mutex
	closed   bool
	listings map[[16]byte]*listing
	used     *list.List // of *listing; the one used last is in front
	bytes    int64
}

// listing is guarded by its shelf's mu, except for spool, which mu guards only against being replaced: rows are read under
// reading, so that a slow disk does not stop the shelf.
type listing struct {
	id      [16]byte
	place   *list.Element
	expiry  *time.Timer
	cursor  string
	size    int64
	filter  [8]byte
	reading sync.RWMutex
	rows    *spool.Spool
	begins  map[int64]bool // offsets that were handed out, guarded by Shelf.mu
}

// Page is a part of a listing.
type Page struct {
	Records  [][]byte
	Continue string // "" on the last page
	Cursor   string // what was given to Hold
}

// New returns an empty shelf for a store.
func New(store cursor.StoreID, o Options) *Shelf {
	if o.TTL <= 0 {
		o.TTL = DefaultTTL
	}
	if o.Listings <= 0 {
		o.Listings = DefaultListings
	}
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	return &Shelf{store: store, options: o, listings: make(map[[16]byte]*listing), used: list.New()}
}

// Hold takes the rest of a listing, which must be sealed and not empty, and returns the token of its next page. Every page
// will have this cursor. The shelf owns rows from now on, also if there is an error.
func (s *Shelf) Hold(filter key.Filter, cursorText string, rows *spool.Spool) (string, error) {
	l := &listing{cursor: cursorText, size: rows.Size(), filter: hash(filter), rows: rows, begins: map[int64]bool{0: true}}
	_, _ = rand.Read(l.id[:]) // never fails
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", errors.Join(storage.ErrClosed, rows.Close())
	}
	s.listings[l.id] = l
	l.place = s.used.PushFront(l)
	s.bytes += l.size
	var gone []*listing
	for s.used.Len() > 1 && (s.used.Len() > s.options.Listings || s.bytes > s.options.Bytes) {
		gone = append(gone, s.remove(s.used.Back().Value.(*listing)))
	}
	l.expiry = time.AfterFunc(s.options.TTL, func() { s.drop(l) })
	s.mu.Unlock()
	return s.token(l, 0), free(gone)
}

// Next returns the page that a token stands for: at most limit records, at least one.
func (s *Shelf) Next(filter key.Filter, token string, limit int) (Page, error) {
	payload, err := cursor.Decode(cursor.Page, s.store, token)
	if err != nil {
		return Page{}, err
	}
	l, offset, err := s.find(filter, payload)
	if err != nil {
		return Page{}, err
	}
	l.reading.RLock()
	defer l.reading.RUnlock()
	if l.rows == nil {
		return Page{}, errGone
	}
	page := Page{Cursor: l.cursor}
	reader, bytes := l.rows.Read(offset), 0
	for len(page.Records) < limit && bytes < PageBytes {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return page, nil
		}
		if err != nil {
			return Page{}, err
		}
		page.Records = append(page.Records, append([]byte(nil), record...))
		bytes += len(record)
	}
	if end := reader.Offset(); end < l.size {
		s.mu.Lock()
		l.begins[end] = true
		s.mu.Unlock()
		page.Continue = s.token(l, end)
	}
	return page, nil
}

var errGone = fmt.Errorf("%w: the listing is gone", storage.ErrCompacted)

// find looks a listing up and marks it as used.
func (s *Shelf) find(filter key.Filter, payload []byte) (*listing, int64, error) {
	invalid := fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	if len(payload) < 24 {
		return nil, 0, invalid
	}
	offset, n := binary.Uvarint(payload[24:])
	if n <= 0 || n != len(payload)-24 {
		return nil, 0, invalid
	}
	if [8]byte(payload[16:24]) != hash(filter) {
		return nil, 0, fmt.Errorf("%w: the continue token belongs to a list with another filter", storage.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0, storage.ErrClosed
	}
	l := s.listings[[16]byte(payload)]
	if l == nil {
		return nil, 0, errGone
	}
	if l.filter != hash(filter) || !l.begins[int64(offset)] {
		return nil, 0, invalid
	}
	s.used.MoveToFront(l.place)
	l.expiry.Reset(s.options.TTL)
	return l, int64(offset), nil
}

func (s *Shelf) token(l *listing, offset int64) string {
	payload := append(append(make([]byte, 0, 34), l.id[:]...), l.filter[:]...)
	return cursor.Encode(cursor.Page, s.store, binary.AppendUvarint(payload, uint64(offset)))
}

// remove takes a listing off the shelf. The caller holds mu, and frees the listing after letting go of it.
func (s *Shelf) remove(l *listing) *listing {
	delete(s.listings, l.id)
	s.used.Remove(l.place)
	s.bytes -= l.size
	if l.expiry != nil {
		l.expiry.Stop()
	}
	return l
}

// drop is what the timer of a listing does.
func (s *Shelf) drop(l *listing) {
	s.mu.Lock()
	held := s.listings[l.id] == l
	if held {
		s.remove(l)
	}
	s.mu.Unlock()
	if held {
		_ = free([]*listing{l}) // nobody is left to hear of it
	}
}

// Close frees all listings. Closing twice is fine.
func (s *Shelf) Close() error {
	s.mu.Lock()
	s.closed = true
	var gone []*listing
	for _, l := range s.listings {
		gone = append(gone, s.remove(l))
	}
	s.mu.Unlock()
	return free(gone)
}

func free(gone []*listing) error {
	var errs []error
	for _, l := range gone {
		l.reading.Lock()
		errs = append(errs, l.rows.Close())
		l.rows = nil
		l.reading.Unlock()
	}
	return errors.Join(errs...)
}

func hash(filter key.Filter) [8]byte {
	sum := sha256.Sum256(filter.Bytes())
	return [8]byte(sum[:8])
}
