package dynamodb

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	defaultPage = 500
	// pageBytes and pageItems end a page early: its size, and the items that were looked at, tombstones and such as do not
	// match among them.
	pageBytes = 4 << 20
	pageItems = 20_000
)

// ListPage implements storage.Pager. DynamoDB holds no snapshot: a page shows each resource as it is when the page is read. The
// pages follow the order of the keys, so what exists unchanged throughout is in exactly one of them.
func (b *Backend) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	limit, badOptions := check.Page(opts, defaultPage)
	filter, badFilter := check.Filter(typ, tenancy, namePrefix)
	l := &listed{filter: filter, consistency: opts.Consistency}
	var badToken error
	if opts.Continue != "" {
		badToken = b.continueFrom(l, opts.Continue)
	}
	ctx, done, err := b.begin(ctx, badOptions, badFilter, badToken)
	if err != nil {
		return storage.Page{}, err
	}
	defer done()
	if opts.Continue == "" {
		if err := b.firstPage(ctx, l); err != nil {
			return storage.Page{}, fmt.Errorf("list %s/%s: %w", typ.Group, typ.Kind, err)
		}
	}
	page, err := b.readPage(ctx, l, limit)
	if err != nil {
		return storage.Page{}, fmt.Errorf("list %s/%s: %w", typ.Group, typ.Kind, err)
	}
	return page, nil
}

// listed is a listing between two pages. A continue token holds all of it, so that any process can go on, at any time.
type listed struct {
	filter      key.Filter
	consistency storage.ReadConsistency
	after       *key.Key
	at          string // the position of the listing, encoded
}

func (b *Backend) firstPage(ctx context.Context, l *listed) error {
	at, err := b.source.before(ctx)
	if err != nil {
		return err
	}
	l.at = string(at.encode())
	return nil
}

func filterSum(f *key.Filter) string {
	sum := sha256.Sum256(f.Bytes())
	return string(sum[:8])
}

func (b *Backend) continueToken(l *listed) string {
	payload := appendText(nil, filterSum(&l.filter))
	payload = appendText(payload, string(byte(l.consistency)))
	payload = appendText(payload, string(l.after.Bytes()))
	return cursor.Encode(cursor.Page, b.id, appendText(payload, l.at))
}

func (b *Backend) continueFrom(l *listed, token string) error {
	payload, err := cursor.Decode(cursor.Page, b.id, token)
	if err != nil {
		return err
	}
	var texts [4]string
	for i := range texts {
		if texts[i], payload, err = cutText(payload); err != nil {
			return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
		}
	}
	if texts[0] != filterSum(&l.filter) {
		return fmt.Errorf("%w: the continue token belongs to a listing with another filter", storage.ErrInvalid)
	}
	after, badKey := key.Parse([]byte(texts[2]))
	_, badPosition := decodePosition([]byte(texts[3]))
	if badKey != nil || badPosition != nil || !l.filter.Match(&after) || len(texts[1]) != 1 ||
		check.Consistency(storage.ReadConsistency(texts[1][0])) != nil {
		return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	}
	l.consistency, l.after, l.at = storage.ReadConsistency(texts[1][0]), &after, texts[3]
	return nil
}

func (b *Backend) readPage(ctx context.Context, l *listed, limit int) (storage.Page, error) {
	page := storage.Page{Cursor: cursor.Encode(cursor.Watch, b.id, []byte(l.at))}
	size, looked := 0, 0
	r := scanRange{filter: l.filter, after: l.after, limit: min(limit+1, maxLimit)}
	err := b.scan(ctx, l.consistency, r, func(h *head) (bool, error) {
		full := len(page.Resources) == limit && h.live || size >= pageBytes || looked >= pageItems
		if full {
			page.Continue = b.continueToken(l)
			return false, nil
		}
		looked++
		l.after = &h.key
		if !h.live {
			return true, nil
		}
		res, err := b.resourceOf(ctx, h)
		if res != nil {
			page.Resources = append(page.Resources, res)
			size += message.Size(res)
		}
		return true, err
	})
	return page, err
}
