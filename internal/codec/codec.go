// Package codec converts resources to bytes and back. A store keeps a resource without its version, which the database supplies.
// Everything else is preserved, including unknown fields and payloads of unknown types.
package codec

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Encode returns the bytes of res without its version.
func Encode(res *resourcepb.Resource) ([]byte, error) { return Append(nil, res) }

// Append appends the result of Encode to b.
func Append(b []byte, res *resourcepb.Resource) ([]byte, error) {
	if plain(res) {
		return appendPlain(slices.Grow(b, sizePlain(res)), res), nil
	}
	if res.GetVersion() != "" {
		res = WithVersion(res, "")
	}
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, res)
	if err != nil {
		return nil, fmt.Errorf("encode resource: %w", err)
	}
	return b, nil
}

// Decode is the inverse of Encode and sets the version.
func Decode(data []byte, version string) (*resourcepb.Resource, error) {
	return decode(data, version, false)
}

// Adopt is Decode for data that has no other reader or writer: the resource may keep its payload there, which saves a copy.
func Adopt(data []byte, version string) (*resourcepb.Resource, error) {
	return decode(data, version, true)
}

func decode(data []byte, version string, adopt bool) (*resourcepb.Resource, error) {
	res, plain := decodePlain(data, adopt)
	if !plain {
		res = new(resourcepb.Resource)
		if err := proto.Unmarshal(data, res); err != nil {
			return nil, fmt.Errorf("decode a stored resource: %w", err)
		}
	}
	res.Version = version
	return res, nil
}

// Size returns the length of the result of Encode.
func Size(res *resourcepb.Resource) int {
	if plain(res) {
		return sizePlain(res)
	}
	n := proto.Size(res)
	if v := res.GetVersion(); v != "" {
		n -= protowire.SizeTag(versionField) + protowire.SizeBytes(len(v))
	}
	return n
}

// WithVersion returns a shallow copy of res with another version. The copy shares everything else with res, so neither may be
// modified afterwards.
func WithVersion(res *resourcepb.Resource, version string) *resourcepb.Resource {
	out := &resourcepb.Resource{
		Id: res.GetId(), Owner: res.GetOwner(), Version: version, Generation: res.GetGeneration(),
		Metadata: res.GetMetadata(), Status: res.GetStatus(), Data: res.GetData(), Author: res.GetAuthor(),
		Ttl: res.GetTtl(),
	}
	out.ProtoReflect().SetUnknown(res.ProtoReflect().GetUnknown())
	return out
}
