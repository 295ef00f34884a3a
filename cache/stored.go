package cache

import (
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// storedResource is the in-memory form of a resource.
type storedResource struct {
	data  []byte // without the version
	owner string // see ownerIndexKey; "" for none
}

// decodeRow returns a new resource from a row. The caller owns it.
func decodeRow(row *replica.Row[storedResource]) (*resourcepb.Resource, error) {
	return codec.Decode(row.Value.data, row.Version)
}

// uid returns the uid of the resource in a row.
func uid(row *replica.Row[storedResource]) string {
	res, err := decodeRow(row)
	if err != nil {
		return ""
	}
	return res.GetId().GetUid()
}

// ownerIndexKey returns the index key of an owner: the bytes of its key, a NUL, and its uid. A key has exactly four NULs and a uid has none, so
// the encoding is unambiguous.
func ownerIndexKey(owner *resourcepb.ID) string {
	if owner == nil {
		return ""
	}
	return string(append(append(key.Of(owner).Bytes(), 0), owner.GetUid()...))
}

func owners(row *replica.Row[storedResource]) []string {
	if row.Value.owner == "" {
		return nil
	}
	return []string{row.Value.owner}
}
