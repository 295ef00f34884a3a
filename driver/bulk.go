package driver

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
)

// Row is a stored resource.
type Row struct {
	Key     Key
	Version string
	Data    []byte // as encoded by Encode
}

// ColumnChecker is a Driver whose database stores parts of a resource a second time, outside of the encoded resource: in columns, in keys, or
// in entries of their own.
type ColumnChecker interface {
	// CheckColumns compares such parts with the resources: uids and owners, for example, the references of an owner, or the last change in
	// the log. It returns the keys of the resources with a part that contradicts the resource, should not exist, or is missing. References
	// that OwnerReferences of a stored owner returns or lacks may be left to the caller. A resource whose encoding is damaged contradicts
	// nothing: reads report it.
	//
	// A call examines at most limit rows after a position, which the first call begins without. next is the position of the next call, or nil
	// at the end. The order is the database's. Changes during the call are not reported. The read is strong.
	CheckColumns(ctx context.Context, after []byte, limit int) (wrong []Key, next []byte, err error)
}

// Bulk is a Driver that reads and fills a whole store faster than pages and transactions do.
type Bulk interface {
	ColumnChecker
	// ReadAfter returns the rows with keys after a key, in key order, as they were stored at one moment during the call. after has
	// the bytes of the key; nil selects all rows. ReadAfter returns at most limit rows, fewer if they are large, and none only at the
	// end. The read is strong.
	ReadAfter(ctx context.Context, after []byte, limit int) ([]Row, error)
	// Load creates resources that do not exist yet, all of them or none, and ignores the versions in rows. Watches report them like
	// other writes. Rows are in key order. If a resource exists already, Load fails. If an answer was lost, Load may fail because
	// of its own earlier attempt. [Creations] returns the mutations for a driver that loads by Apply.
	Load(ctx context.Context, rows []Row) error
}

// ReadBytes bounds a result of ReadAfter: it ends once its rows have that many bytes.
const ReadBytes = 1 << 20

// Creations returns the mutations that create the resources in rows. A row that is no valid resource is an error that matches
// storage.ErrInvalid, one that is larger than maxSize an error that matches storage.ErrTooLarge. maxSize 0 selects MaxSize.
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
		err = fmt.Errorf("%w: the resource has %d bytes, expected at most %d", storage.ErrTooLarge, len(row.Data), maxSize)
	}
	return Mutation{Verb: Write, Key: k, Uid: res.GetId().GetUid(), Resource: res}, err
}
