package driver

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
)

// Row is a resource as a store keeps it.
type Row struct {
	Key     Key
	Version string
	Data    []byte // as Encode encodes it
}

// Bulk is a Driver that reads and fills a whole store in less time than pages and transactions take.
type Bulk interface {
	// ReadAfter returns what is stored, at one moment during the call, under the keys that follow the one whose bytes are given
	// (nil: under all), in the order of keys: at most limit rows, fewer where they are large, none only if there are none. The
	// read is strong.
	ReadAfter(ctx context.Context, after []byte, limit int) ([]Row, error)
	// Load creates resources that are not there, all of them or none, whatever versions the rows have; watches see them as they
	// see others. Rows are in the order of keys. If one is there already, Load fails; if an answer is lost, Load may fail because
	// of what it did itself. [Creations] returns the mutations for a driver that loads by Apply.
	Load(ctx context.Context, rows []Row) error
}

// ReadBytes is the number of bytes after which ReadAfter returns what it has.
const ReadBytes = 1 << 20

// Creations returns the mutations that create the resources in rows. A row that is no legal resource, or is larger than maxSize, is an
// error that matches storage.ErrInvalid or storage.ErrTooLarge. maxSize 0 is MaxSize.
func Creations(rows []Row, maxSize int) ([]Mutation, error) {
	if maxSize <= 0 {
		maxSize = MaxSize
	}
	mutations := make([]Mutation, len(rows))
	for i := range rows {
		var err error
		if mutations[i], err = creation(&rows[i], maxSize); err != nil {
			return nil, fmt.Errorf("%v: %w", rows[i].Key, err)
		}
	}
	return mutations, nil
}

func creation(row *Row, maxSize int) (Mutation, error) {
	res, err := codec.DecodeOf(row.Key, row.Data, "")
	if err != nil {
		return Mutation{}, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	k, err := check.IDWithUid("id", res.GetId())
	if err == nil && res.GetOwner() != nil {
		_, err = check.IDWithUid("owner", res.GetOwner())
	}
	if err == nil && len(row.Data) > maxSize {
		err = fmt.Errorf("%w: the resource has %d bytes, the most is %d", storage.ErrTooLarge, len(row.Data), maxSize)
	}
	return Mutation{Verb: Write, Key: k, Uid: res.GetId().GetUid(), Resource: res}, err
}
