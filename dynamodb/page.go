package dynamodb

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/codec"
)

// defaultPageItems ends a page early by the items that were looked at, tombstones and such as do not match among them.
const defaultPageItems = 20_000

// Page implements driver.Pager. DynamoDB holds no snapshot: a page shows each resource as it is when the page is read. The pages
// follow the order of the keys, so what exists unchanged throughout is in exactly one of them.
func (l *lister) Page(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, from []byte, limit int) (driver.ListedPage[*streams.Position], error) {
	listing := &listing{filter: *f, consistency: consistency}
	var err error
	if from != nil {
		err = listing.decode(from)
	} else {
		listing.at, err = l.source.Before(ctx)
	}
	if err != nil {
		return driver.ListedPage[*streams.Position]{}, err
	}
	page := driver.ListedPage[*streams.Position]{At: listing.at}
	size, looked := 0, 0
	r := scanRange{filter: *f, consistency: listing.consistency, after: listing.after, limit: min(limit+1, maxLimit)}
	r.passed = func(k key.Key) bool {
		listing.after = &k
		if looked++; looked < l.pageItems && len(page.Resources) < limit {
			return true
		}
		page.Next = listing.encode()
		return false
	}
	err = l.scan(ctx, r, func(h *head) (bool, error) {
		full := len(page.Resources) == limit && h.live || size >= driver.PageBytes || looked >= l.pageItems
		if full {
			page.Next = listing.encode()
			return false, nil
		}
		looked++
		listing.after = &h.key
		if !h.live {
			return true, nil
		}
		res, err := l.reader.resourceOf(ctx, h)
		if res != nil {
			page.Resources = append(page.Resources, res)
			size += codec.Size(res)
		}
		return true, err
	})
	return page, err
}

// listing is a listing between two pages. A continue token holds all of it but the filter, so that any process can go on, at any
// time.
type listing struct {
	filter      driver.Filter
	consistency storage.ReadConsistency
	after       *driver.Key
	at          *streams.Position
}

func (l *listing) encode() []byte {
	b := protowire.AppendBytes(nil, []byte{byte(l.consistency)})
	b = protowire.AppendBytes(b, l.after.Bytes())
	return protowire.AppendBytes(b, l.at.Encode())
}

func (l *listing) decode(from []byte) error {
	invalid := fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	var fields [3][]byte
	for i := range fields {
		field, n := protowire.ConsumeBytes(from)
		if n < 0 {
			return invalid
		}
		fields[i], from = field, from[n:]
	}
	after, badKey := key.Parse(fields[1])
	at, badPosition := streams.DecodePosition(fields[2])
	prefix, _ := l.filter.Prefix() // a page may end behind a key that does not match
	if badKey != nil || badPosition != nil || !bytes.HasPrefix(fields[1], prefix) || len(fields[0]) != 1 ||
		storage.ReadConsistency(fields[0][0]) > storage.StrongConsistency {
		return invalid
	}
	l.consistency, l.after, l.at = storage.ReadConsistency(fields[0][0]), &after, at
	return nil
}
