package registry

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Type is a type of resources. Its functions must be safe for concurrent use.
type Type struct {
	// Type is the name of the type. The group has lower-case letters, digits, '_', '.' and '-'; the group version is like "v1", "v2beta1" or "vnext1";
	// the kind is in camel case and starts with an upper-case letter.
	Type *resourcepb.Type
	// Proto is an empty message of the payload's type. It is not modified.
	Proto proto.Message
	// Scope is the scope of the type. If it is ScopeUndefined, the schema of Proto must declare it.
	Scope Scope

	// Conversion makes the type a served group version of a kind that is stored in another one. If nil, resources are stored as they are written.
	Conversion *Conversion

	// Mutate completes a resource before validation, for example with defaults. The resource has an id with the tenancy filled in and data of the
	// right type. The function may modify it during the call, except the id, the owner, the version, the generation and the status. Nil completes
	// nothing.
	Mutate func(*resourcepb.Resource) error
	// Validate returns an error if a resource must not be stored. It is called after Mutate and must not modify the resource. If nil, every resource
	// is valid.
	Validate func(*resourcepb.Resource) error

	// MayRead returns an error if the caller must not read a resource. It is called first without the resource, and may return ErrNeedResource to be
	// called again with it. If nil, Caller.OperatorRead decides.
	MayRead func(Caller, *resourcepb.ID, *resourcepb.Resource) error
	// MayWrite returns an error if the caller must not write or delete a resource. For a write it is called with the new resource, and with the stored
	// one if there is one; for a deletion and for a status with the stored one, or with an id alone if nothing is stored. If nil, Caller.OperatorWrite
	// decides.
	MayWrite func(Caller, *resourcepb.Resource) error
	// MayList returns an error if the caller must not list or watch the type in a tenancy, whose units may be "*". Lists omit the resources that
	// MayRead rejects in any case. If nil, Caller.OperatorRead decides.
	MayList func(Caller, *resourcepb.Type, *resourcepb.Tenancy) error

	versions *versions // of the kind if one of them has a Conversion, otherwise nil
}

// versions are the group versions of a kind that convert to each other.
type versions struct {
	stored *Type
	all    map[string]*Type // by group version
}

// Caller is the authenticated caller of the service, as returned by its Authenticate function. Hooks may assert it to a more specific type.
type Caller interface {
	// OperatorRead returns an error if the caller must not read or list resources. It decides for types without the hook of the call.
	OperatorRead() error
	// OperatorWrite returns an error if the caller must not write or delete resources. It decides for types without MayWrite.
	OperatorWrite() error
}

var (
	// ErrNeedResource is returned by MayRead if the id does not suffice to decide.
	ErrNeedResource = errors.New("the resource is needed to decide")
	// ErrDenied is wrapped by the error of an authorization hook that denies the request. Any other error means that the hook could not decide.
	ErrDenied = errors.New("permission denied")
)

// withDefaults returns the type with all authorization functions set.
func (t Type) withDefaults() *Type {
	if t.MayRead == nil {
		t.MayRead = func(c Caller, _ *resourcepb.ID, _ *resourcepb.Resource) error { return c.OperatorRead() }
	}
	if t.MayWrite == nil {
		t.MayWrite = func(c Caller, _ *resourcepb.Resource) error { return c.OperatorWrite() }
	}
	if t.MayList == nil {
		t.MayList = func(c Caller, _ *resourcepb.Type, _ *resourcepb.Tenancy) error { return c.OperatorRead() }
	}
	return &t
}

// equal reports whether two types are equal, including the group version.
func equal(a, b *resourcepb.Type) bool {
	return a.GetGroup() == b.GetGroup() && a.GetGroupVersion() == b.GetGroupVersion() && a.GetKind() == b.GetKind()
}
