package backend

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// ListPage implements storage.Pager.
func (b *Backend[P]) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (_ storage.Page, err error) {
	f, badFilter := check.Filter(typ, tenancy, namePrefix)
	limit, badOptions := check.Page(opts, pageLimit)
	read, badToken := b.pages(&f, opts)
	ctx, call, err := b.begin(ctx, telemetry.ListPage, badFilter, badOptions, badToken)
	if err != nil {
		return storage.Page{}, err
	}
	defer call.end(&err)
	page, err := read(ctx, min(limit, maxRecords))
	if err != nil {
		return storage.Page{}, callError("list a page", nil, err)
	}
	return page, nil
}

// pageLimit is the number of resources in a page without a requested limit.
const pageLimit = 500

// reading reads a page of at most limit resources.
type reading func(ctx context.Context, limit int) (storage.Page, error)

// pages checks a continue token, without sending a request, and returns the function that reads its page. It prefers the driver's
// own pages over history.
func (b *Backend[P]) pages(f *driver.Filter, opts storage.ListOptions) (reading, error) {
	switch {
	case opts.Revision != 0 && b.historian == nil:
		return nil, fmt.Errorf("%w: revision is %d, but the store keeps no history", storage.ErrInvalid, opts.Revision)
	case b.historian != nil && (b.pager == nil || opts.Revision != 0 || cursor.Is(cursor.Revision, opts.Continue)):
		next, err := b.parsePageToken(f, opts)
		return func(ctx context.Context, limit int) (storage.Page, error) {
			return b.historyPage(ctx, f, opts, next, limit)
		}, err
	}
	from, err := b.parseToken(cursor.Page, f, opts.Continue)
	return func(ctx context.Context, limit int) (storage.Page, error) {
		return b.readPage(ctx, opts, f, from, limit)
	}, err
}

// parseToken returns the payload of a continue token without its filter; nil for the first page.
func (b *Backend[P]) parseToken(kind cursor.Kind, f *driver.Filter, token string) ([]byte, error) {
	if token == "" {
		return nil, nil
	}
	payload, err := cursor.Decode(kind, b.driver.StoreID(), token)
	if err != nil {
		return nil, err
	}
	sum := filterSum(f)
	if len(payload) <= len(sum) {
		return nil, noToken()
	}
	if [8]byte(payload) != sum {
		return nil, fmt.Errorf("%w: the continue token belongs to a list with another filter", storage.ErrInvalid)
	}
	return payload[len(sum):], nil
}

func noToken() error { return fmt.Errorf("%w: the text is no continue token", storage.ErrInvalid) }

// token is the inverse of parseToken.
func (b *Backend[P]) token(kind cursor.Kind, f *driver.Filter, payload []byte) string {
	sum := filterSum(f)
	return cursor.Encode(kind, b.driver.StoreID(), append(sum[:], payload...))
}

// filterSum returns a checksum that distinguishes the tokens of different filters.
func filterSum(f *driver.Filter) [8]byte {
	sum := sha256.Sum256(f.Bytes())
	return [8]byte(sum[:8])
}

// pageStart is the start of a page that is read from history.
type pageStart[P any] struct {
	at       *P     // the position of the listing; nil for a new listing
	revision int64  // the requested revision of the listing, or 0
	after    []byte // the key after which the page begins
}

// parsePageToken is the inverse of pageToken. A token is valid with the revision requested for its listing, or with none.
func (b *Backend[P]) parsePageToken(f *driver.Filter, opts storage.ListOptions) (pageStart[P], error) {
	none := pageStart[P]{}
	payload, err := b.parseToken(cursor.Revision, f, opts.Continue)
	if payload == nil || err != nil {
		return none, err
	}
	revision, n := binary.Uvarint(payload)
	if n <= 0 || revision > 1<<62 {
		return none, noToken()
	}
	payload = payload[n:]
	size, n := binary.Uvarint(payload)
	if n <= 0 || size > uint64(len(payload)-n) {
		return none, noToken()
	}
	position, after := payload[n:n+int(size)], payload[n+int(size):]
	at, err := b.source.Decode(position)
	if err != nil {
		return none, fmt.Errorf("the continue token: %w", err)
	}
	if _, err := key.Parse(after); err != nil {
		return none, noToken()
	}
	if opts.Revision != 0 && opts.Revision != int64(revision) {
		return none, fmt.Errorf("%w: the continue token belongs to a list at another revision", storage.ErrInvalid)
	}
	return pageStart[P]{&at, int64(revision), after}, nil
}

func (b *Backend[P]) pageToken(f *driver.Filter, p pageStart[P]) string {
	position := b.source.Encode(*p.at)
	payload := binary.AppendUvarint(nil, uint64(p.revision))
	payload = binary.AppendUvarint(payload, uint64(len(position)))
	payload = append(payload, position...)
	return b.token(cursor.Revision, f, append(payload, p.after...))
}

// historyPage reads a page of a listing at one position.
func (b *Backend[P]) historyPage(ctx context.Context, f *driver.Filter, opts storage.ListOptions, from pageStart[P], limit int) (storage.Page, error) {
	q := driver.HistoryQuery[P]{At: from.at, Consistency: opts.Consistency, Filter: f, Limit: limit}
	q.RefuseMoved = opts.Consistency == storage.StrongConsistency && opts.Revision == 0
	if from.at == nil && opts.Revision != 0 {
		at, err := b.historian.PositionAt(ctx, opts.Revision)
		if err != nil {
			return storage.Page{}, err
		}
		q.At, from.revision = &at, opts.Revision
	}
	prefix, _ := f.Prefix()
	q.From, q.To = prefix, key.PrefixEnd(prefix)
	if from.after != nil {
		if q.From = keyAfter(from.after); string(q.From) < string(prefix) {
			q.From = prefix
		}
	}
	var resources decodedRows
	var last []byte
	past, err := b.historian.ReadAt(ctx, &q, func(v *driver.Version) error {
		err := resources.addVersion(v)
		var damaged *storage.DamagedError
		if errors.As(err, &damaged) && opts.SkipDamaged != nil && opts.SkipDamaged(damaged) {
			if len(resources.resources) == 0 {
				last = append(last[:0], v.Key...) // otherwise the continue token does not name a resource that the page omits
			}
			return nil
		}
		last = append(last[:0], v.Key...)
		return err
	})
	if err != nil {
		return storage.Page{}, err
	}
	page := storage.Page{Resources: resources.resources, Cursor: b.cursor(past.At)}
	if past.More {
		if last == nil {
			return storage.Page{}, errEmptyPage
		}
		page.Continue = b.pageToken(f, pageStart[P]{&past.At, from.revision, last})
	}
	return page, nil
}

// readPage reads a page of the driver's own Pager.
func (b *Backend[P]) readPage(ctx context.Context, opts storage.ListOptions, f *driver.Filter, from []byte, limit int) (storage.Page, error) {
	listed, err := b.pager.Page(ctx, opts.Consistency, f, from, limit)
	if err != nil {
		return storage.Page{}, err
	}
	for _, damaged := range listed.Damaged {
		if opts.SkipDamaged == nil || !opts.SkipDamaged(damaged) {
			return storage.Page{}, damaged
		}
	}
	page := storage.Page{Resources: listed.Resources, Cursor: b.cursor(listed.At)}
	if listed.Next != nil {
		page.Continue = b.token(cursor.Page, f, listed.Next)
	}
	return page, nil
}
