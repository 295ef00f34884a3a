// Package paging holds listings that go on, for databases where reading later pages from the same snapshot would need a
// transaction that stays open between them. The first page's query goes on, at once, to copy the rest out into a spool; the
// continue token finds it again.
//
// A token carries the name of the listing and an offset in it, so a page that is asked for twice is the same page twice. It
// works in the handle that made it only: elsewhere, and when the listing is gone, it is storage.ErrCompacted.
//
// # Bounds
//
// A listing whose last page has not been read yet is never given up for another one: its tokens live for the TTL after the last
// use. So the bounds turn away the listing that comes last, with storage.ErrInconsistent, which callers retry. One whose last
// page was read stays only while there is room, for a caller that has lost the answer and asks again. What all listings keep in
// memory has a bound of its own, beyond which they lie on disk.
package paging

import (
	"container/list"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/spill"
)

// Defaults of Options, and what adapters use for the listings they hand over.
const (
	DefaultTTL      = 6 * time.Minute
	DefaultListings = 1000
	DefaultBytes    = 4 << 30
	DefaultMemory   = 64 << 20

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
	Listings int           // the most listings held
	Bytes    int64         // the most bytes held, in memory and on disk together, if there is more than one listing
	Memory   int64         // the most bytes held in memory
}

// Shelf holds the listings of one opened backend.
type Shelf struct {
	store   cursor.StoreID
	options Options

	mu       sync.Mutex
	closed   bool
	listings map[[16]byte]*listing
	finished *list.List // of those listings whose last page was read; the one that ended last is in front
	bytes    int64
	memory   int64
}

// listing is guarded by its shelf's mu, except for spool, which mu guards only against being replaced: rows are read under
// reading, so that a slow disk does not stop the shelf.
type listing struct {
	id      [16]byte
	place   *list.Element // in Shelf.finished, or nil
	expiry  *time.Timer
	until   time.Time // when it is given up, whatever a timer says that fired before it was used again
	cursor  string
	size    int64
	memory  int64 // how much of it is in memory
	filter  [8]byte
	reading sync.RWMutex
	rows    *spill.Spool
	secret  [16]byte // of the checksums by which offsets are known that were handed out
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
	if o.Memory <= 0 {
		o.Memory = DefaultMemory
	}
	return &Shelf{store: store, options: o, listings: make(map[[16]byte]*listing), finished: list.New()}
}

// First returns the first page of a listing, which must be sealed and is read from its beginning, and holds it if that is not
// all. The shelf owns rows from now on, also if there is an error.
func (s *Shelf) First(filter key.Filter, cursorText string, rows *spill.Spool, limit int) (Page, error) {
	page := Page{Cursor: cursorText}
	end, err := page.read(rows, 0, limit)
	if err != nil || end == rows.Size() {
		return page, errors.Join(err, rows.Close())
	}
	page.Continue, err = s.hold(filter, cursorText, rows, end)
	return page, err
}

// Hold takes the rest of a listing, which must be sealed and not empty, and returns the token of its next page. Every page
// will have this cursor. The shelf owns rows from now on, also if there is an error.
func (s *Shelf) Hold(filter key.Filter, cursorText string, rows *spill.Spool) (string, error) {
	return s.hold(filter, cursorText, rows, 0)
}

func (s *Shelf) hold(filter key.Filter, cursorText string, rows *spill.Spool, begin int64) (string, error) {
	l := &listing{cursor: cursorText, size: rows.Size(), memory: rows.Memory(), filter: hash(filter), rows: rows}
	_, _ = rand.Read(l.id[:]) // never fails
	_, _ = rand.Read(l.secret[:])
	gone, err := s.place(l)
	_ = free(gone) // who listed them has no use for the error, and who lists this one has nothing to do with it
	if err != nil {
		return "", errors.Join(err, free([]*listing{l}))
	}
	if err := s.spill(l); err != nil {
		s.drop(l)
		return "", err
	}
	return s.token(l, begin), nil
}

// place puts a listing on the shelf, where finished ones make room for it. The caller frees those that it returns.
func (s *Shelf) place(l *listing) (gone []*listing, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, storage.ErrClosed
	}
	s.listings[l.id] = l
	s.bytes += l.size
	s.memory += l.memory
	for s.finished.Len() > 0 && (s.full() || s.memory > s.options.Memory) {
		gone = append(gone, s.remove(s.finished.Back().Value.(*listing)))
	}
	if s.full() {
		s.remove(l)
		return gone, fmt.Errorf("%w: %d listings with %d bytes are under way in this handle, and there is no room for another one of "+
			"%d bytes: try again when the last page of one was read, or %v after the last use of one",
			storage.ErrInconsistent, len(s.listings), s.bytes, l.size, s.options.TTL)
	}
	l.until = time.Now().Add(s.options.TTL)
	l.expiry = time.AfterFunc(s.options.TTL, func() { s.expire(l) })
	return gone, nil
}

// full reports whether there is more on the shelf than may be. A single listing may be of any size.
func (s *Shelf) full() bool {
	return len(s.listings) > s.options.Listings || len(s.listings) > 1 && s.bytes > s.options.Bytes
}

// spill moves a listing to disk if there is too much in memory.
func (s *Shelf) spill(l *listing) error {
	s.mu.Lock()
	fits := s.memory <= s.options.Memory
	s.mu.Unlock()
	if fits {
		return nil
	}
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.rows == nil {
		return nil // the shelf was closed
	}
	if err := l.rows.Spill(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listings[l.id] == l {
		s.memory -= l.memory
		l.memory = 0
	}
	return nil
}

// Check looks at what a token says, before anything is done: it returns nil for "", and otherwise an error that Next would return
// too. Next finds out about the rest.
func (s *Shelf) Check(filter key.Filter, token string) error {
	if token == "" {
		return nil
	}
	_, err := s.parse(filter, token)
	return err
}

// Next returns the page that a token stands for: at most limit records, at least one.
func (s *Shelf) Next(filter key.Filter, token string, limit int) (Page, error) {
	at, err := s.parse(filter, token)
	if err != nil {
		return Page{}, err
	}
	l, err := s.find(at)
	if err != nil {
		return Page{}, err
	}
	l.reading.RLock()
	defer l.reading.RUnlock()
	if l.rows == nil {
		return Page{}, errGone
	}
	page := Page{Cursor: l.cursor}
	end, err := page.read(l.rows, at.offset, limit)
	if err != nil {
		return Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.listings[l.id] != l:
		return Page{}, errGone
	case end == l.size:
		s.finish(l)
		return page, nil
	}
	s.goesOn(l) // somebody else may have read the last page meanwhile
	page.Continue = s.token(l, end)
	return page, nil
}

// finish notes that the last page of a listing was read. The caller holds mu.
func (s *Shelf) finish(l *listing) {
	if l.place == nil {
		l.place = s.finished.PushFront(l)
	}
}

// read takes records from an offset on, at least one if there is one, and returns where the next page begins.
func (p *Page) read(rows *spill.Spool, offset int64, limit int) (end int64, err error) {
	reader := rows.Read(offset)
	for bytes := 0; len(p.Records) < limit && bytes < PageBytes; {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		p.Records = append(p.Records, append([]byte(nil), record...))
		bytes += len(record)
	}
	return reader.Offset(), nil
}

var errGone = fmt.Errorf("%w: the listing is gone", storage.ErrCompacted)

var errNoToken = fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)

// place in a listing, as a token names it.
type place struct {
	id     [16]byte
	filter [8]byte
	sum    [8]byte // of the offset
	offset int64
}

// A token is the listing's id, the filter's hash, the checksum and the offset.
const (
	filterAt = len(place{}.id)
	sumAt    = filterAt + len(listing{}.filter)
	offsetAt = sumAt + len(place{}.sum)
)

func (s *Shelf) token(l *listing, offset int64) string {
	sum := l.sum(offset)
	payload := append(make([]byte, 0, offsetAt+binary.MaxVarintLen64), l.id[:]...)
	payload = append(append(payload, l.filter[:]...), sum[:]...)
	return cursor.Encode(cursor.Page, s.store, binary.AppendUvarint(payload, uint64(offset)))
}

// parse undoes token. The checksum is looked at by find.
func (s *Shelf) parse(filter key.Filter, token string) (place, error) {
	payload, err := cursor.Decode(cursor.Page, s.store, token)
	if err != nil {
		return place{}, err
	}
	if len(payload) < offsetAt {
		return place{}, errNoToken
	}
	offset, n := binary.Uvarint(payload[offsetAt:])
	if n <= 0 || n != len(payload)-offsetAt {
		return place{}, errNoToken
	}
	at := place{id: [16]byte(payload), filter: [8]byte(payload[filterAt:]), sum: [8]byte(payload[sumAt:]), offset: int64(offset)}
	if at.filter != hash(filter) {
		return place{}, fmt.Errorf("%w: the continue token belongs to a list with another filter", storage.ErrInvalid)
	}
	return at, nil
}

// sum is what nobody else can work out for an offset: a page that began inside a record would read anything.
func (l *listing) sum(offset int64) [8]byte {
	mac := hmac.New(sha256.New, l.secret[:])
	mac.Write(binary.AppendUvarint(nil, uint64(offset)))
	return [8]byte(mac.Sum(nil))
}

// find looks a listing up and marks it as used.
func (s *Shelf) find(at place) (*listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, storage.ErrClosed
	}
	l := s.listings[at.id]
	if l == nil {
		return nil, errGone
	}
	if l.filter != at.filter || l.sum(at.offset) != at.sum {
		return nil, errNoToken
	}
	s.goesOn(l)
	l.until = time.Now().Add(s.options.TTL)
	l.expiry.Reset(s.options.TTL)
	return l, nil
}

// goesOn undoes finish: somebody reads the listing again. The caller holds mu.
func (s *Shelf) goesOn(l *listing) {
	if l.place != nil {
		s.finished.Remove(l.place)
		l.place = nil
	}
}

// remove takes a listing off the shelf. The caller holds mu, and frees the listing after letting go of it.
func (s *Shelf) remove(l *listing) *listing {
	delete(s.listings, l.id)
	s.goesOn(l)
	s.bytes -= l.size
	s.memory -= l.memory
	if l.expiry != nil {
		l.expiry.Stop()
	}
	return l
}

// expire is what the timer of a listing does. It may have fired just before somebody used the listing, and set it anew.
func (s *Shelf) expire(l *listing) {
	s.dropIf(l, func() bool { return !time.Now().Before(l.until) })
}

func (s *Shelf) drop(l *listing) { s.dropIf(l, func() bool { return true }) }

// dropIf gives a listing up if it is there, and condition holds, which is asked under mu.
func (s *Shelf) dropIf(l *listing, condition func() bool) {
	s.mu.Lock()
	held := s.listings[l.id] == l && condition()
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
