package inmem

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	defaultPage = 500
	pageBytes   = 4 << 20
	pageLife    = 6 * time.Minute // at least 5 after the last use
	maxListings = 1000            // under way at once; the one used longest ago goes first
)

// listing is a snapshot whose pages are being read.
type listing struct {
	tree   *btree.BTreeG[*item]
	filter key.Filter
	cursor string
	used   time.Time
	expire *time.Timer
}

// listings are those under way on one handle, by a random name that their tokens carry.
type listings struct {
	mu   sync.Mutex
	byID map[[16]byte]*listing
}

func newListings() *listings { return &listings{byID: make(map[[16]byte]*listing)} }

// ListPage implements storage.Pager. All pages of a listing show one moment.
func (b *Backend) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	if err := b.begin(ctx); err != nil {
		return storage.Page{}, err
	}
	filter, err := check.Filter(typ, tenancy, namePrefix)
	if err != nil {
		return storage.Page{}, err
	}
	limit, err := check.Page(opts, defaultPage)
	if err != nil {
		return storage.Page{}, err
	}
	var id [16]byte
	var after *key.Key
	var l *listing
	if opts.Continue == "" {
		tree, at := b.store.snapshot()
		l = &listing{tree: tree, filter: filter, cursor: b.store.cursor(at)}
		_, _ = rand.Read(id[:]) // never fails
	} else {
		payload, err := cursor.Decode(cursor.Page, b.store.storeID(), opts.Continue)
		if err != nil {
			return storage.Page{}, err
		}
		k, err := key.Parse(payload[min(16, len(payload)):])
		if err != nil {
			return storage.Page{}, fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
		}
		id, after = [16]byte(payload[:16]), &k
		if l = b.pages.use(id); l == nil {
			return storage.Page{}, fmt.Errorf("%w: the listing was given up", storage.ErrCompacted)
		}
		if l.filter != filter {
			return storage.Page{}, fmt.Errorf("%w: the continue token belongs to another filter", storage.ErrInvalid)
		}
	}
	page := storage.Page{Cursor: l.cursor}
	bytes, more := 0, false
	var last key.Key
	// A copy of the copy: two callers may read pages of one listing at once.
	ascend(b.pages.copyOf(l), &filter, after, func(it *item) bool {
		if len(page.Resources) == limit || bytes > pageBytes || ctx.Err() != nil {
			more = true
			return false
		}
		bytes += message.Size(it.resource)
		last = it.key
		page.Resources = append(page.Resources, message.Clone(it.resource))
		return true
	})
	if err := ctx.Err(); err != nil {
		return storage.Page{}, err
	}
	if more {
		b.pages.keep(id, l)
		page.Continue = cursor.Encode(cursor.Page, b.store.storeID(), last.Append(id[:]))
	}
	return page, nil
}

// use returns the listing and lets it live on.
func (ls *listings) use(id [16]byte) *listing {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byID[id]
	if l != nil {
		l.used = time.Now()
		l.expire.Reset(pageLife)
	}
	return l
}

func (ls *listings) copyOf(l *listing) *btree.BTreeG[*item] {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.tree.Copy()
}

// keep holds a listing until it has not been used for a while.
func (ls *listings) keep(id [16]byte, l *listing) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byID == nil || ls.byID[id] != nil {
		return
	}
	if len(ls.byID) >= maxListings {
		ls.dropOldest()
	}
	l.used = time.Now()
	l.expire = time.AfterFunc(pageLife, func() { ls.drop(id) })
	ls.byID[id] = l
}

func (ls *listings) dropOldest() {
	var oldest [16]byte
	var used time.Time
	for id, l := range ls.byID {
		if used.IsZero() || l.used.Before(used) {
			oldest, used = id, l.used
		}
	}
	ls.byID[oldest].expire.Stop()
	delete(ls.byID, oldest)
}

func (ls *listings) drop(id [16]byte) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.byID, id)
}

func (ls *listings) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byID {
		l.expire.Stop()
	}
	ls.byID = nil
}
