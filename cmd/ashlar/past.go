package main

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// scanLimit is how many records are asked for at once.
const scanLimit = 500

// onHistory opens the store for a command that needs its history, and closes it. What the store has forgotten, or what has not
// happened yet, is an error that names the revisions it has.
func (a *app) onHistory(ctx context.Context, do func(storage.Historian) error) error {
	if a.server.Address != "" {
		return usagef("a server does not show the past: name its store by --store")
	}
	return a.with(ctx, func(backend storage.Backend) error {
		h, ok := storage.As[storage.Historian](backend)
		if !ok {
			return usagef("this store does not number its changes, so nothing can be shown of its past")
		}
		err := do(h)
		if !errors.Is(err, storage.ErrCompacted) && !errors.Is(err, storage.ErrFutureRevision) {
			return err
		}
		if oldest, newest, unknown := h.Revisions(ctx); unknown == nil {
			err = fmt.Errorf("%w (the store has the revisions %d to %d)", err, oldest, newest)
		}
		return err
	})
}

// past is what matched a filter at a revision, read page by page.
type past struct {
	h        storage.Historian
	filter   key.Filter
	span     storage.Span
	revision int64

	page []storage.Record
	more bool // pages, from span.From on
}

// newPast returns what matched at a revision; 0 is the newest one.
func newPast(h storage.Historian, typ storage.UnversionedType, f filter, revision int64) *past {
	p := &past{h: h, revision: revision, more: true, filter: key.Filter{
		Group: typ.Group, Kind: typ.Kind, Partition: f.partition, Namespace: f.namespace, NamePrefix: f.prefix,
	}}
	p.span = spanOf(&p.filter)
	return p
}

// next returns the next record, nil after the last one.
func (p *past) next(ctx context.Context) (*storage.Record, error) {
	for {
		for len(p.page) > 0 {
			r := &p.page[0]
			p.page = p.page[1:]
			if k := key.Of(r.Resource.GetId()); p.filter.Match(&k) {
				return r, nil
			}
		}
		if !p.more {
			return nil, nil
		}
		if err := p.read(ctx); err != nil {
			return nil, err
		}
	}
}

// each calls do for the resources, in order, and for no more than limit, unless that is 0.
func (p *past) each(ctx context.Context, limit int, do func(*resourcepb.Resource) error) error {
	for left := limit; ; {
		r, err := p.next(ctx)
		if err != nil || r == nil {
			return err
		}
		if err := do(r.Resource); err != nil {
			return err
		}
		if left--; left == 0 {
			return nil
		}
	}
}

func (p *past) read(ctx context.Context) error {
	scan, err := p.h.Scan(ctx, p.span, storage.ScanOptions{Revision: p.revision, Limit: scanLimit})
	if err != nil {
		return err
	}
	p.page, p.more, p.revision, p.span = scan.Records, scan.More, scan.Revision, scan.Rest
	return nil
}

// spanOf returns a span with all keys that a filter matches, and few others where it begins with fixed parts.
func spanOf(f *key.Filter) storage.Span {
	fixed := []string{f.Group, f.Kind, f.Partition, f.Namespace, f.NamePrefix}
	for i, part := range fixed {
		if part == storage.Wildcard && i < 4 || part == "" && i == 4 {
			fixed = fixed[:i]
			break
		}
	}
	if len(fixed) == 0 {
		return storage.Span{}
	}
	span := storage.Span{From: idOf(fixed...)}
	if len(fixed) < 5 {
		span.To = after(fixed...)
	} else if name, ok := afterPrefix(f.NamePrefix); ok {
		span.To = idOf(append(fixed[:4:4], name)...)
	} else {
		span.To = after(fixed[:4]...)
	}
	return span
}

// after returns the lowest id after all keys that begin with these parts, nil if there is none.
func after(parts ...string) *resourcepb.ID {
	for i := len(parts) - 1; i >= 0; i-- {
		// Nothing is longer than the longest text, and no NUL is in it.
		next, ok := parts[i]+"\x01", len(parts[i]) < check.MaxPart
		if !ok {
			next, ok = afterPrefix(parts[i])
		}
		if ok {
			return idOf(append(parts[:i:i], next)...)
		}
	}
	return nil
}

// afterPrefix returns the lowest legal text after all that begin with s, false if there is none.
func afterPrefix(s string) (string, bool) {
	for s != "" {
		r, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
		if r++; r == 0xd800 {
			r = 0xe000 // what lies between is no character
		}
		if r <= utf8.MaxRune && len(s)+utf8.RuneLen(r) <= check.MaxPart {
			return s + string(r), true
		}
	}
	return "", false
}

// idOf makes an id of the first parts of a key.
func idOf(parts ...string) *resourcepb.ID {
	var all [5]string
	copy(all[:], parts)
	return key.Key{Group: all[0], Kind: all[1], Partition: all[2], Namespace: all[3], Name: all[4]}.ID("", "")
}
