package codec

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// DecodeOf is Decode for the data stored under a key. Data that is no resource, or a resource of another key, is a
// *storage.DamagedError: corrupted data may decode, for example as a resource without a name.
func DecodeOf(k key.Key, data []byte, version string) (*resourcepb.Resource, error) {
	res, err := Decode(data, version)
	return belonging(k, data, version, res, err)
}

// AdoptOf is DecodeOf with Adopt instead of Decode.
func AdoptOf(k key.Key, data []byte, version string) (*resourcepb.Resource, error) {
	res, err := Adopt(data, version)
	return belonging(k, data, version, res, err)
}

// DecodeAt is DecodeOf with the bytes of the key, which are parsed only for an error.
func DecodeAt(at, data []byte, version string) (*resourcepb.Resource, error) {
	return decodeAt(at, data, version, false)
}

// AdoptAt is DecodeAt with Adopt instead of Decode.
func AdoptAt(at, data []byte, version string) (*resourcepb.Resource, error) {
	return decodeAt(at, data, version, true)
}

func decodeAt(at, data []byte, version string, adopt bool) (*resourcepb.Resource, error) {
	res, err := decode(data, version, adopt)
	if err == nil {
		if k := key.Of(res.Id); k.EqualsBytes(at) && res.GetId().GetUid() != "" {
			return res, nil
		}
	}
	k, bad := key.Parse(at)
	if bad != nil {
		return nil, bad
	}
	return belonging(k, data, version, res, err)
}

func belonging(k key.Key, data []byte, version string, res *resourcepb.Resource, err error) (*resourcepb.Resource, error) {
	switch id := res.GetId(); {
	case err != nil:
	case id == nil:
		err = errors.New("the resource has no id")
	case key.Of(id) != k:
		err = fmt.Errorf("the resource is %v", key.Of(id))
	case id.Uid == "":
		err = errors.New("the resource has no uid")
	default:
		return res, nil
	}
	return nil, DamageError(k, "", version, bytes.Clone(data), err) // the caller may reuse data
}

// DamageError returns the error for damaged data under a key, with its uid, version and bytes as far as they are known.
func DamageError(k key.Key, uid, version string, data []byte, err error) error {
	return &storage.DamagedError{ID: k.ID(uid, ""), Version: version, Data: data, Err: err}
}
