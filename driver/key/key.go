// Package key contains the identity of a resource, in the list order of every backend.
//
// A key is (group, kind, partition, namespace, name). No part contains a NUL, so the parts joined by NUL bytes are unambiguous, and
// their byte order is the order of the tuple.
package key

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Key identifies a resource. It is comparable and can be the key of a map.
type Key struct {
	Group, Kind, Partition, Namespace, Name string
}

// Of returns the key of id, without validation.
func Of(id *resourcepb.ID) Key {
	return Key{
		Group:     id.GetType().GetGroup(),
		Kind:      id.GetType().GetKind(),
		Partition: id.GetTenancy().GetPartition(),
		Namespace: id.GetTenancy().GetNamespace(),
		Name:      id.GetName(),
	}
}

// ID returns the id with this key.
func (k Key) ID(uid, groupVersion string) *resourcepb.ID {
	parts := &struct { // one allocation
		id      resourcepb.ID
		typ     resourcepb.Type
		tenancy resourcepb.Tenancy
	}{}
	id := &parts.id
	id.Uid, id.Name, id.Type, id.Tenancy = uid, k.Name, &parts.typ, &parts.tenancy
	id.Type.Group, id.Type.GroupVersion, id.Type.Kind = k.Group, groupVersion, k.Kind
	id.Tenancy.Partition, id.Tenancy.Namespace = k.Partition, k.Namespace
	return id
}

// Compare orders keys by their bytes, part by part.
func (k Key) Compare(o Key) int {
	switch {
	case k.Before(&o):
		return -1
	case k == o:
		return 0
	}
	return 1
}

// Before reports whether k precedes o. Search trees call it in each step, so it takes pointers, and first tests the parts that most
// keys share for equality.
func (k *Key) Before(o *Key) bool {
	switch {
	case k.Group != o.Group:
		return k.Group < o.Group
	case k.Kind != o.Kind:
		return k.Kind < o.Kind
	case k.Partition != o.Partition:
		return k.Partition < o.Partition
	case k.Namespace != o.Namespace:
		return k.Namespace < o.Namespace
	}
	return k.Name < o.Name
}

// Bytes returns the parts joined by NUL.
func (k Key) Bytes() []byte {
	return k.Append(make([]byte, 0, len(k.Group)+len(k.Kind)+len(k.Partition)+len(k.Namespace)+len(k.Name)+4))
}

// Append appends the result of Bytes to b.
func (k Key) Append(b []byte) []byte {
	b = append(b, k.Group...)
	b = append(b, 0)
	b = append(b, k.Kind...)
	b = append(b, 0)
	b = append(b, k.Partition...)
	b = append(b, 0)
	b = append(b, k.Namespace...)
	b = append(b, 0)
	return append(b, k.Name...)
}

// Parse is the inverse of Bytes.
func Parse(b []byte) (Key, error) {
	if n := bytes.Count(b, []byte{0}); n != 4 {
		return Key{}, fmt.Errorf("the stored key %.1000q has %d parts, expected 5", b, n+1)
	}
	p := strings.Split(string(b), "\x00")
	return Key{Group: p[0], Kind: p[1], Partition: p[2], Namespace: p[3], Name: p[4]}, nil
}

// EqualsBytes reports whether b equals the result of Bytes. It does not allocate.
func (k *Key) EqualsBytes(b []byte) bool {
	for i, part := range [...]string{k.Group, k.Kind, k.Partition, k.Namespace, k.Name} {
		if i > 0 {
			if len(b) == 0 || b[0] != 0 {
				return false
			}
			b = b[1:]
		}
		if len(b) < len(part) || string(b[:len(part)]) != part {
			return false
		}
		b = b[len(part):]
	}
	return len(b) == 0
}

// String returns the key in the form used in error texts.
func (k Key) String() string {
	return fmt.Sprintf("%q of %s/%s in %q/%q", k.Name, k.Group, k.Kind, k.Partition, k.Namespace)
}
