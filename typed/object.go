package typed

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Object is a resource with a decoded payload.
type Object[T any] struct {
	// ID identifies the resource. Create assigns the uid of a new resource.
	ID *resourcepb.ID
	// Owner is the id of the owning resource, with its uid; nil for none.
	Owner *resourcepb.ID
	// Version identifies this state of the resource in the store.
	Version string
	// Generation is a ULID that changes with every write except a status update.
	Generation string
	// Metadata is arbitrary text under names.
	Metadata map[string]string
	// Status holds the report of each controller under the controller's key.
	Status map[string]*resourcepb.Status
	// TTL is the time to live of this version, 0 for none: a program that deletes expired resources deletes the object after this time, unless it
	// was written again. Any write starts the time again, with the TTL of the written object. See [Client.Renew] and package expiry.
	TTL time.Duration
	// Data is the payload.
	Data T

	stored storedParts
}

// storedParts are the parts of a stored resource that an Object cannot represent. Writes preserve them.
type storedParts struct {
	unknown protoreflect.RawFields // fields of the resource that only newer programs know
	typeURL string                 // of the payload
	payload []byte                 // as stored, if data may lack a part of it; else nil
}

// ErrExists reports that a resource to be created exists. The error also matches [storage.ErrCASFailure] or [storage.ErrWrongUid].
var ErrExists = errors.New("the resource exists")

// PayloadError is returned, as *PayloadError, if the payload of a stored resource does not have the expected message type or cannot be decoded.
type PayloadError struct {
	// ID is the id of the resource.
	ID *resourcepb.ID
	// Got is the name of the stored message, and Want the name of the expected one.
	Got, Want string
	// Err is the decoding error of a payload of the expected message; nil for another message.
	Err error
}

// Error implements the error interface.
func (e *PayloadError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the payload of %s cannot be decoded as %s: %v", idString(e.ID), e.Want, e.Err)
	}
	if e.Got == "" {
		return fmt.Sprintf("%s has no payload, expected %s", idString(e.ID), e.Want)
	}
	return fmt.Sprintf("the payload of %s is %s, expected %s", idString(e.ID), e.Got, e.Want)
}

// Unwrap returns Err.
func (e *PayloadError) Unwrap() error { return e.Err }

// Codec translates between resources and objects. It is for packages that hold objects of several types, such as package tables. A [Client] has
// its own.
type Codec[T any] struct {
	message string // the full name of the message
	decode  func(payload []byte) (T, error)
	encode  func(T) ([]byte, error)
	merge   func(stored, encoded []byte) ([]byte, error) // adds the parts of a stored payload that T lacks; nil if T has all parts
	empty   func() T
	clone   func(T) T
	equal   func(a, b T) bool
}

// Object decodes a resource. The object shares the resource's memory. It fails with a [*PayloadError] if the payload is not the codec's.
func (c *Codec[T]) Object(res *resourcepb.Resource) (*Object[T], error) {
	o := &Object[T]{
		ID: res.GetId(), Owner: res.GetOwner(), Version: res.GetVersion(), Generation: res.GetGeneration(),
		Metadata: res.GetMetadata(), Status: res.GetStatus(), TTL: res.GetTtl().AsDuration(),
		stored: storedParts{unknown: res.ProtoReflect().GetUnknown(), typeURL: res.GetData().GetTypeUrl()},
	}
	if got := string(res.GetData().MessageName()); got != c.message {
		return nil, &PayloadError{ID: res.GetId(), Got: got, Want: c.message}
	}
	data, err := c.decode(res.GetData().GetValue())
	if err != nil {
		return nil, &PayloadError{ID: res.GetId(), Got: c.message, Want: c.message, Err: err}
	}
	if o.Data = data; c.merge != nil {
		o.stored.payload = res.GetData().GetValue()
	}
	return o, nil
}

// Resource encodes an object. The resource shares memory with it. It fails with [storage.ErrInvalid] if the data cannot be encoded.
//
// The payload of a decoded object is the stored one, byte for byte, if the data is unchanged. Otherwise the fields of a stored JSON object that T
// lacks are added to the data.
func (c *Codec[T]) Resource(o *Object[T]) (*resourcepb.Resource, error) {
	payload, err := c.encode(o.Data)
	if err == nil && o.stored.payload != nil {
		payload, err = c.merge(o.stored.payload, payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the payload of %s cannot be encoded: %w", storage.ErrInvalid, idString(o.ID), err)
	}
	res := &resourcepb.Resource{
		Id: o.ID, Owner: o.Owner, Version: o.Version, Generation: o.Generation, Metadata: o.Metadata, Status: o.Status,
		Data: &anypb.Any{TypeUrl: cmp.Or(o.stored.typeURL, "type.googleapis.com/"+c.message), Value: payload},
	}
	if o.TTL != 0 {
		res.Ttl = durationpb.New(o.TTL)
	}
	if len(o.stored.unknown) > 0 {
		res.ProtoReflect().SetUnknown(o.stored.unknown)
	}
	return res, nil
}

// Copy returns a deep copy of an object.
func (c *Codec[T]) Copy(o *Object[T]) *Object[T] {
	out := *o
	out.ID, out.Owner = codec.CloneID(o.ID), codec.CloneID(o.Owner)
	out.Metadata, out.Status = maps.Clone(o.Metadata), maps.Clone(o.Status)
	for key, status := range out.Status {
		out.Status[key] = proto.CloneOf(status)
	}
	out.Data = c.clone(o.Data)
	return &out
}

// Replace prepares an object to replace a stored one, nil for none, and reports whether it differs. The object gets a new generation unless only
// statuses differ. It keeps the parts of the stored resource that T cannot represent.
func (c *Codec[T]) Replace(stored, o *Object[T]) (changed bool) {
	if stored == nil {
		o.Generation = ulid.Make().String()
		return true
	}
	o.Generation, o.stored = stored.Generation, stored.stored
	if c.Same(stored, o) {
		return false
	}
	withoutStatus := *o
	withoutStatus.Status = stored.Status
	if !c.Same(stored, &withoutStatus) {
		o.Generation = ulid.Make().String()
	}
	return true
}

// Same reports whether two objects have the same content: owner, group version, metadata, statuses, time to live and data. The group version of an owner
// is no part of its key: a service may have stored another one.
func (c *Codec[T]) Same(a, b *Object[T]) bool {
	return sameOwner(a.Owner, b.Owner) && a.TTL == b.TTL && maps.Equal(a.Metadata, b.Metadata) && c.equal(a.Data, b.Data) &&
		a.ID.GetType().GetGroupVersion() == b.ID.GetType().GetGroupVersion() &&
		maps.EqualFunc(a.Status, b.Status, func(x, y *resourcepb.Status) bool { return proto.Equal(x, y) })
}

// sameOwner reports whether two owners are the same resource.
func sameOwner(a, b *resourcepb.ID) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.GetUid() == b.GetUid() && key.Of(a) == key.Of(b)
}
