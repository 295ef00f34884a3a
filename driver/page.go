package driver

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/paging"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ListPage implements storage.Pager.
func (b *Backend[P]) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	f, badFilter := check.Filter(typ, tenancy, namePrefix)
	limit, badOptions := check.Page(opts, paging.PageLimit)
	from, badToken := b.checkToken(&f, opts.Continue)
	ctx, done, err := b.begin(ctx, badFilter, badOptions, badToken)
	if err != nil {
		return storage.Page{}, err
	}
	defer done()
	var page storage.Page
	if pager, ok := b.driver.(Pager[P]); ok {
		page, err = b.readPage(ctx, pager, opts.Consistency, &f, from, limit)
	} else {
		page, err = b.copyPage(ctx, opts.Consistency, &f, opts.Continue, limit)
	}
	if err != nil {
		return storage.Page{}, failed("list a page", nil, err)
	}
	return page, nil
}

// checkToken looks at what a continue token says, before anything is done, and returns what a Pager goes on from.
func (b *Backend[P]) checkToken(f *Filter, token string) (from []byte, err error) {
	switch {
	case token == "":
		return nil, nil
	case b.shelf != nil:
		return nil, b.shelf.Check(*f, token)
	}
	payload, err := cursor.Decode(cursor.Page, b.driver.StoreID(), token)
	if err != nil {
		return nil, err
	}
	sum := filterSum(f)
	if len(payload) <= len(sum) {
		return nil, fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	}
	if [8]byte(payload) != sum {
		return nil, fmt.Errorf("%w: the continue token belongs to a list with another filter", storage.ErrInvalid)
	}
	return payload[len(sum):], nil
}

// filterSum tells the tokens of different filters apart.
func filterSum(f *Filter) [8]byte {
	sum := sha256.Sum256(f.Bytes())
	return [8]byte(sum[:8])
}

// readPage has the driver read a page.
func (b *Backend[P]) readPage(ctx context.Context, pager Pager[P], consistency storage.ReadConsistency, f *Filter, from []byte, limit int) (storage.Page, error) {
	listed, err := pager.Page(ctx, consistency, f, from, limit)
	if err != nil {
		return storage.Page{}, err
	}
	page := storage.Page{Resources: listed.Resources, Cursor: b.cursor(listed.At)}
	if listed.Next != nil {
		sum := filterSum(f)
		page.Continue = cursor.Encode(cursor.Page, b.driver.StoreID(), append(sum[:], listed.Next...))
	}
	return page, nil
}

// copyPage serves a page from a copy of the listing, which the first page makes.
func (b *Backend[P]) copyPage(ctx context.Context, consistency storage.ReadConsistency, f *Filter, token string, limit int) (storage.Page, error) {
	var page paging.Page
	var err error
	if token != "" {
		page, err = b.shelf.Next(*f, token, limit)
	} else {
		page, err = b.firstPage(ctx, consistency, f, limit)
	}
	if err != nil {
		return storage.Page{}, err
	}
	out := storage.Page{Resources: make([]*resourcepb.Resource, len(page.Records)), Continue: page.Continue, Cursor: page.Cursor}
	for i, record := range page.Records {
		if out.Resources[i], err = fromRecord(record); err != nil {
			return storage.Page{}, err
		}
	}
	return out, nil
}

func (b *Backend[P]) firstPage(ctx context.Context, consistency storage.ReadConsistency, f *Filter, limit int) (paging.Page, error) {
	rows := newCopied(paging.SpoolMemory)
	at, err := b.driver.Scan(ctx, consistency, f, rows)
	if err == nil {
		err = rows.spool.Seal()
	}
	if err != nil {
		return paging.Page{}, rows.close(err)
	}
	return b.shelf.First(*f, b.cursor(at), rows.spool, limit)
}
