package driver

import (
	"context"
)

// Row is a resource as a store keeps it.
type Row struct {
	Key     Key
	Version string
	Data    []byte // as Encode encodes it
}

// BulkReader is a Driver that reads a whole store in less time, and with less held meanwhile, than pages of one snapshot take.
type BulkReader interface {
	// ReadAfter returns what is stored, at one moment during the call, under the keys that follow the one whose bytes are given
	// (nil: under all), in the order of keys: at most limit rows, fewer where they are large, none only if there are none. The
	// read is strong.
	ReadAfter(ctx context.Context, after []byte, limit int) ([]Row, error)
}

// ReadBytes is the number of bytes after which ReadAfter returns what it has.
const ReadBytes = 1 << 20

// Loader is a Driver that creates many resources in less time than Apply.
type Loader interface {
	// Load creates resources that are not there, all of them or none, whatever versions the rows have; watches see them as they
	// see others. Rows are in the order of keys. If one is there already, Load fails; if an answer is lost, Load may fail because
	// of what it did itself.
	Load(ctx context.Context, rows []Row) error
}
