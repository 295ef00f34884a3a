package codec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// The following functions are proto.Size and proto.Marshal, without the version and without reflection, for nearly all resources:
// those without statuses, an author, a time to live and unknown fields, as reported by plain. The bytes are the same.

func plain(res *resourcepb.Resource) bool {
	if res == nil || len(res.Status) > 0 || res.Author != "" || res.Ttl != nil || hasUnknown(res) || !utf8.ValidString(res.Generation) || !plainID(res.Id) || !plainID(res.Owner) {
		return false
	}
	for k, v := range res.Metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return false
		}
	}
	return res.Data == nil || utf8.ValidString(res.Data.TypeUrl) && !hasUnknown(res.Data)
}

func plainID(id *resourcepb.ID) bool {
	if id == nil {
		return true
	}
	if !utf8.ValidString(id.Uid) || !utf8.ValidString(id.Name) || hasUnknown(id) {
		return false
	}
	if t := id.Type; t != nil && (!utf8.ValidString(t.Group) || !utf8.ValidString(t.GroupVersion) || !utf8.ValidString(t.Kind) || hasUnknown(t)) {
		return false
	}
	t := id.Tenancy
	return t == nil || utf8.ValidString(t.Partition) && utf8.ValidString(t.Namespace) && !hasUnknown(t)
}

func hasUnknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// CheckUnknown returns an error for unknown fields that Decode would reject, or would read as known fields. A message that was decoded has none.
func CheckUnknown(res *resourcepb.Resource) error {
	c := unknownCheck{}
	c.add(res)
	c.addID(res.Id)
	c.addID(res.Owner)
	c.add(res.Data)
	c.add(res.Ttl)
	for _, status := range res.Status {
		c.add(status)
		c.add(status.GetUpdatedAt())
		for _, condition := range status.GetConditions() {
			ref := condition.GetResource()
			c.add(condition)
			c.add(ref)
			c.add(ref.GetType())
			c.add(ref.GetTenancy())
		}
	}
	return c.err
}

// unknownCheck has the error of the last message with wrong unknown fields.
type unknownCheck struct{ err error }

func (c *unknownCheck) addID(id *resourcepb.ID) {
	c.add(id)
	c.add(id.GetType())
	c.add(id.GetTenancy())
}

func (c *unknownCheck) add(m proto.Message) {
	if !hasUnknown(m) {
		return
	}
	unknown, decoded := m.ProtoReflect().GetUnknown(), m.ProtoReflect().New()
	if err := proto.Unmarshal(unknown, decoded.Interface()); err != nil || !bytes.Equal(decoded.GetUnknown(), unknown) {
		c.err = fmt.Errorf("the unknown fields of a %s are malformed or contain known fields", decoded.Descriptor().Name())
	}
}

// sizePlain returns the number of bytes that appendPlain appends.
func sizePlain(res *resourcepb.Resource) int {
	n := sizeText(res.Generation)
	if res.Id != nil {
		n += sizeField(sizeID(res.Id))
	}
	if res.Owner != nil {
		n += sizeField(sizeID(res.Owner))
	}
	for k, v := range res.Metadata {
		n += sizeField(sizeField(len(k)) + sizeField(len(v)))
	}
	if res.Data != nil {
		n += sizeField(sizeAny(res.Data))
	}
	return n
}

// sizeField returns the size of a field of n bytes with a number below 16.
func sizeField(n int) int { return 1 + protowire.SizeBytes(n) }

func sizeText(s string) int {
	if s == "" {
		return 0
	}
	return sizeField(len(s))
}

func sizeID(id *resourcepb.ID) int {
	n := sizeText(id.Uid) + sizeText(id.Name)
	if id.Type != nil {
		n += sizeField(sizeType(id.Type))
	}
	if id.Tenancy != nil {
		n += sizeField(sizeTenancy(id.Tenancy))
	}
	return n
}

func sizeType(t *resourcepb.Type) int {
	return sizeText(t.Group) + sizeText(t.GroupVersion) + sizeText(t.Kind)
}

func sizeTenancy(t *resourcepb.Tenancy) int { return sizeText(t.Partition) + sizeText(t.Namespace) }

func sizeAny(a *anypb.Any) int {
	n := sizeText(a.TypeUrl)
	if len(a.Value) > 0 {
		n += sizeField(len(a.Value))
	}
	return n
}

func appendPlain(b []byte, res *resourcepb.Resource) []byte {
	if res.Id != nil {
		b = appendID(b, 1, res.Id)
	}
	if res.Owner != nil {
		b = appendID(b, 2, res.Owner)
	}
	b = appendText(b, 4, res.Generation)
	for _, k := range slices.Sorted(maps.Keys(res.Metadata)) {
		v := res.Metadata[k]
		b = appendHead(b, 5, sizeField(len(k))+sizeField(len(v)))
		b = append(appendHead(b, 1, len(k)), k...)
		b = append(appendHead(b, 2, len(v)), v...)
	}
	if a := res.Data; a != nil {
		b = appendText(appendHead(b, 7, sizeAny(a)), 1, a.TypeUrl)
		if len(a.Value) > 0 {
			b = append(appendHead(b, 2, len(a.Value)), a.Value...)
		}
	}
	return b
}

// appendHead appends the tag and the length of a field of n bytes.
func appendHead(b []byte, number protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(n))
}

func appendText(b []byte, number protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return append(appendHead(b, number, len(s)), s...)
}

func appendID(b []byte, number protowire.Number, id *resourcepb.ID) []byte {
	b = appendHead(b, number, sizeID(id))
	b = appendText(appendText(b, 1, id.Uid), 2, id.Name)
	if t := id.Type; t != nil {
		b = appendHead(b, 3, sizeType(t))
		b = appendText(appendText(appendText(b, 1, t.Group), 2, t.GroupVersion), 3, t.Kind)
	}
	if t := id.Tenancy; t != nil {
		b = appendHead(b, 4, sizeTenancy(t))
		b = appendText(appendText(b, 1, t.Partition), 2, t.Namespace)
	}
	return b
}

// versionField is the number of Resource.version.
const versionField = 3
