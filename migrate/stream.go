package migrate

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// everything is the filter of a whole store.
var everything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}

func everywhere() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
}

// entry is a resource with its key.
type entry struct {
	key key.Key
	res *resourcepb.Resource
}

// stream gives resources in the order of their keys; nil after the last one.
type stream interface {
	next(ctx context.Context) (*entry, error)
}

// listing streams a whole store, a page ahead of its reader.
type listing struct {
	cursor string // the position of the listing in the store's history

	pages  chan answer
	cancel context.CancelFunc
	page   []*resourcepb.Resource
	last   *key.Key
}

type answer struct {
	page storage.Page
	err  error
}

// list begins to list a store. The listing has to be closed.
func list(ctx context.Context, b storage.Backend, limit int, try retrier) (*listing, error) {
	pager, ok := storage.As[storage.Pager](b)
	if !ok {
		var all []*resourcepb.Resource
		err := try.do(ctx, "list", func(ctx context.Context) (err error) {
			all, err = b.List(ctx, storage.StrongConsistency, everything, everywhere(), "")
			return err
		})
		if err != nil {
			return nil, err
		}
		l := &listing{pages: make(chan answer), cancel: func() {}, page: all}
		close(l.pages)
		return l, nil
	}
	fetch := func(ctx context.Context, token string) (page storage.Page, err error) {
		err = try.do(ctx, "list a page", func(ctx context.Context) (err error) {
			opts := storage.ListOptions{Consistency: storage.StrongConsistency, Limit: limit, Continue: token}
			page, err = pager.ListPage(ctx, everything, everywhere(), "", opts)
			return err
		})
		return page, err
	}
	first, err := fetch(ctx, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &listing{cursor: first.Cursor, pages: make(chan answer), cancel: cancel, page: first.Resources}
	go func() {
		defer close(l.pages)
		for token := first.Continue; token != ""; {
			page, err := fetch(ctx, token)
			select {
			case l.pages <- answer{page, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			token = page.Continue
		}
	}()
	return l, nil
}

// close ends the listing and waits until nothing of it is under way.
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
				return nil, err // the listing may have ended because of it
			}
			if !more {
				return nil, nil
			}
			if a.err != nil {
				return nil, a.err
			}
			l.page = a.page.Resources
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e := &entry{key.Of(l.page[0].GetId()), l.page[0]}
	l.page[0] = nil
	l.page = l.page[1:]
	if l.last != nil && l.last.Compare(e.key) >= 0 {
		return nil, fmt.Errorf("the list is out of order: %v comes after %v", e.key, *l.last)
	}
	l.last = &e.key
	return e, nil
}

// join walks through two streams side by side. visit gets what both have under a key, nil where one has nothing.
func join(ctx context.Context, a, b stream, visit func(k key.Key, a, b *resourcepb.Resource) error) error {
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
			order = left.key.Compare(right.key)
		}
		var k key.Key
		var l, r *resourcepb.Resource
		if order <= 0 {
			k, l = left.key, left.res
			if left, err = a.next(ctx); err != nil {
				return fmt.Errorf("source: %w", err)
			}
		}
		if order >= 0 {
			k, r = right.key, right.res
			if right, err = b.next(ctx); err != nil {
				return fmt.Errorf("target: %w", err)
			}
		}
		if err := visit(k, l, r); err != nil {
			return err
		}
	}
	return nil
}

// equal tells whether two resources are the same in everything but the version.
func equal(a, b *resourcepb.Resource) (bool, error) {
	left, err := message.Encode(a)
	if err != nil {
		return false, err
	}
	right, err := message.Encode(b)
	if err != nil {
		return false, err
	}
	return bytes.Equal(left, right), nil
}

// isEmpty tells whether a store holds nothing.
func isEmpty(ctx context.Context, b storage.Backend, try retrier) (bool, error) {
	l, err := list(ctx, b, 1, try)
	if err != nil {
		return false, err
	}
	defer l.close()
	e, err := l.next(ctx)
	return e == nil, err
}
