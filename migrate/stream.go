package migrate

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// everything is the filter of a whole store.
var everything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}

// nothingAtAll is a filter that matches no resource.
var nothingAtAll = storage.UnversionedType{Group: "ashlar.migrate.nothing", Kind: "nothing"}

func anyTenancy() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
}

// entry is a resource in stored form. It is decoded only on demand.
type entry struct {
	driver.Row
	res *resourcepb.Resource
}

// entryOf encodes a resource.
func entryOf(res *resourcepb.Resource) (entry, error) {
	data, err := codec.Encode(res)
	return entry{driver.Row{Key: key.Of(res.GetId()), Version: res.GetVersion(), Data: data}, res}, err
}

// resource decodes the entry. A nil entry is a nil resource.
func (e *entry) resource() (res *resourcepb.Resource, err error) {
	if e == nil {
		return nil, nil
	}
	if e.res == nil {
		e.res, err = codec.DecodeOf(e.Key, e.Data, e.Version)
	}
	return e.res, err
}

// data returns the entry's bytes; a nil entry has none.
func (e *entry) data() []byte {
	if e == nil {
		return nil
	}
	return e.Data
}

// reencode returns the bytes as this program encodes them.
func (e *entry) reencode() ([]byte, error) {
	res, err := e.resource()
	if err != nil {
		return nil, err
	}
	return codec.Encode(res)
}

// stream returns resources in the order of their keys, and nil after the last one.
type stream interface {
	next(ctx context.Context) (*entry, error)
}

// listing streams a whole store, one page ahead of its reader.
type listing struct {
	cursor string // a position in the store's history; the changes after it complete the listing

	pages  chan answer
	cancel context.CancelFunc
	endErr error // why the listing ended before its last page; read it after pages is closed
	page   []entry
	last   *key.Key
}

type answer struct {
	page []entry
	err  error
}

// list starts a listing of a store. The caller must close it. A resource that changes meanwhile is in it in its old or its new
// state.
func list(ctx context.Context, b storage.Backend, limit int, try retrier) (*listing, error) {
	reader, ok := storage.As[driver.Bulk](b)
	if !ok {
		return listSnapshot(ctx, b, limit, try)
	}
	l := &listing{}
	if pager, ok := storage.As[storage.Pager](b); ok {
		var err error
		if l.cursor, err = position(ctx, pager, try); err != nil {
			return nil, err
		}
	}
	var after []byte
	return l.start(ctx, func(ctx context.Context) (page []entry, more bool, err error) {
		var rows []driver.Row
		err = try.do(ctx, "read on", func(ctx context.Context) (err error) {
			rows, err = reader.ReadAfter(ctx, after, limit)
			return err
		})
		if err != nil || len(rows) == 0 {
			return nil, false, err
		}
		after = rows[len(rows)-1].Key.Bytes()
		page = make([]entry, len(rows))
		for i := range rows {
			page[i].Row = rows[i]
		}
		return page, true, nil
	})
}

// position returns the present position of a store's history.
func position(ctx context.Context, pager storage.Pager, try retrier) (cursor string, err error) {
	// A list that matches nothing costs nothing, and its cursor is valid for every filter.
	err = try.do(ctx, "read the position", func(ctx context.Context) error {
		page, err := pager.ListPage(ctx, nothingAtAll, &resourcepb.Tenancy{}, "", storage.ListOptions{Consistency: storage.StrongConsistency, Limit: 1})
		cursor = page.Cursor
		return err
	})
	return cursor, err
}

// listSnapshot is list on one snapshot, if the store has snapshots.
func listSnapshot(ctx context.Context, b storage.Backend, limit int, try retrier) (*listing, error) {
	l := &listing{}
	pager, paged := storage.As[storage.Pager](b)
	token := ""
	return l.start(ctx, func(ctx context.Context) (entries []entry, more bool, err error) {
		var page storage.Page
		err = try.do(ctx, "list", func(ctx context.Context) (err error) {
			if !paged {
				page.Resources, err = b.List(ctx, storage.StrongConsistency, everything, anyTenancy(), "")
				return err
			}
			opts := storage.ListOptions{Consistency: storage.StrongConsistency, Limit: limit, Continue: token}
			page, err = pager.ListPage(ctx, everything, anyTenancy(), "", opts)
			return err
		})
		if err != nil {
			return nil, false, err
		}
		token = page.Continue
		if l.cursor == "" {
			l.cursor = page.Cursor // the first page's, which is present before the first read
		}
		entries = make([]entry, len(page.Resources))
		for i, res := range page.Resources {
			if entries[i], err = entryOf(res); err != nil {
				return nil, false, err
			}
		}
		return entries, token != "", nil
	})
}

// start reads the first page, and continues in the background.
func (l *listing) start(ctx context.Context, fetch func(context.Context) (page []entry, more bool, err error)) (*listing, error) {
	page, more, err := fetch(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l.page, l.pages, l.cancel = page, make(chan answer), cancel
	go func() {
		defer close(l.pages)
		for more {
			page, more, err = fetch(ctx)
			select {
			case l.pages <- answer{page, err}:
			case <-ctx.Done():
				l.endErr = ctx.Err()
				return
			}
		}
	}()
	return l, nil
}

// close ends the listing and waits for its goroutines.
func (l *listing) close() {
	l.cancel()
	for range l.pages {
	}
}

func (l *listing) next(ctx context.Context) (*entry, error) {
	for len(l.page) == 0 {
		select {
		case a, more := <-l.pages:
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if !more {
				// The listing's context may have ended just before the caller's.
				return nil, l.endErr
			}
			if a.err != nil {
				return nil, a.err
			}
			l.page = a.page
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e := &l.page[0]
	l.page = l.page[1:]
	if l.last != nil && l.last.Compare(e.Key) >= 0 {
		return nil, fmt.Errorf("the list is out of order: %v comes after %v", e.Key, *l.last)
	}
	l.last = &e.Key
	return e, nil
}

// join reads two streams in parallel. visit gets both entries of a key, nil if a stream has none.
func join(ctx context.Context, a, b stream, visit func(a, b *entry) error) error {
	left, err := a.next(ctx)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	right, err := b.next(ctx)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	for left != nil || right != nil {
		order := 0
		switch {
		case right == nil:
			order = -1
		case left == nil:
			order = 1
		default:
			order = left.Key.Compare(right.Key)
		}
		var l, r *entry
		if order <= 0 {
			l = left
			if left, err = a.next(ctx); err != nil {
				return fmt.Errorf("source: %w", err)
			}
		}
		if order >= 0 {
			r = right
			if right, err = b.next(ctx); err != nil {
				return fmt.Errorf("target: %w", err)
			}
		}
		if err := visit(l, r); err != nil {
			return err
		}
	}
	return nil
}

// equal reports whether two resources are equal except for the version.
func equal(a, b *resourcepb.Resource) (bool, error) {
	left, err := codec.Encode(a)
	if err != nil {
		return false, err
	}
	right, err := codec.Encode(b)
	if err != nil {
		return false, err
	}
	return bytes.Equal(left, right), nil
}

// isEmpty reports whether a store has no resources.
func isEmpty(ctx context.Context, b storage.Backend, try retrier) (bool, error) {
	l, err := list(ctx, b, 1, try)
	if err != nil {
		return false, err
	}
	defer l.close()
	e, err := l.next(ctx)
	return e == nil, err
}
