package cache

import (
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// storedResource is a resource in memory.
type storedResource struct {
	data  []byte // without the version
	owner string // the bytes of the owner's key and its uid; "" for none
}

// decodeRow makes a decodeRow, which is the caller's, of what is in memory.
func decodeRow(row *replica.Row[storedResource]) (*resourcepb.Resource, error) {
	return codec.Decode(row.Value.data, row.Version)
}

// uid returns the uid of what is stored.
func uid(row *replica.Row[storedResource]) string {
	res, err := decodeRow(row)
	if err != nil {
		return ""
	}
	return res.GetId().GetUid()
}

// ownerIndexKey is what the index has of an owner. A key has four NULs and a uid has none, so nothing is ambiguous.
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
