package dynamodb

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// pageItems ends a page early by the items that were looked at, tombstones and such as do not match among them.
const pageItems = 20_000

// Page implements driver.Pager. DynamoDB holds no snapshot: a page shows each resource as it is when the page is read. The pages
// follow the order of the keys, so what exists unchanged throughout is in exactly one of them.
func (b *handle) Page(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, from []byte, limit int) (driver.ListedPage[*position], error) {
	l := &listed{filter: *f, consistency: consistency}
	var err error
	if from != nil {
		err = l.decode(from)
	} else {
		l.at, err = b.source.before(ctx)
	}
	if err != nil {
		return driver.ListedPage[*position]{}, err
	}
	return b.readPage(ctx, l, limit)
}

// listed is a listing between two pages. A continue token holds all of it but the filter, so that any process can go on, at any
// time.
type listed struct {
	filter      driver.Filter
	consistency storage.ReadConsistency
	after       *driver.Key
	at          *position
}

func (l *listed) encode() []byte {
	b := appendText(nil, string(byte(l.consistency)))
	b = appendText(b, string(l.after.Bytes()))
	return appendText(b, string(l.at.encode()))
}

func (l *listed) decode(from []byte) (err error) {
	var texts [3]string
	for i := range texts {
		if texts[i], from, err = cutText(from); err != nil {
			return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
		}
	}
	after, badKey := key.Parse([]byte(texts[1]))
	at, badPosition := decodePosition([]byte(texts[2]))
	if badKey != nil || badPosition != nil || !l.filter.Match(&after) || len(texts[0]) != 1 ||
		storage.ReadConsistency(texts[0][0]) > storage.StrongConsistency {
		return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	}
	l.consistency, l.after, l.at = storage.ReadConsistency(texts[0][0]), &after, at
	return nil
}

func (b *handle) readPage(ctx context.Context, l *listed, limit int) (driver.ListedPage[*position], error) {
	page := driver.ListedPage[*position]{At: l.at}
	size, looked := 0, 0
	r := scanRange{filter: l.filter, after: l.after, limit: min(limit+1, maxLimit)}
	err := b.scan(ctx, l.consistency, r, func(h *head) (bool, error) {
		full := len(page.Resources) == limit && h.live || size >= driver.PageBytes || looked >= pageItems
		if full {
			page.Next = l.encode()
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
			size += codec.Size(res)
		}
		return true, err
	})
	return page, err
}
