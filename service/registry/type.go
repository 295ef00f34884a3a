package registry

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Type is a type of resources, and what is particular about it. Its functions are called from many goroutines at once.
type Type struct {
	// Type is the name of the type. The group is of lower-case letters, digits, '_', '.' and '-', the group version is like "v1",
	// "v2beta1" or "vnext1", and the kind is in camel case, from an upper-case letter on.
	Type *resourcepb.Type
	// Proto is an empty message of the payload's type. It is not changed.
	Proto proto.Message
	// Scope of the type. If it is ScopeUndefined, the schema of Proto has to declare it.
	Scope Scope

	// Mutate completes a resource before it is validated, for example by defaults. The resource has an id with the tenancy filled in
	// and data of the right type, and belongs to the function for the time of the call. It must not change the id, the owner,
	// the version, the generation or the status. Nil: nothing to complete.
	Mutate func(*resourcepb.Resource) error
	// Validate returns an error if a resource must not be stored. It runs after Mutate and must not change the resource. Nil: every
	// resource is valid.
	Validate func(*resourcepb.Resource) error

	// MayRead returns an error if the caller must not see a resource. It is first called without the resource, and may answer
	// ErrNeedResource to be called again with it. Nil: whom Caller.OperatorRead lets.
	MayRead func(Caller, *resourcepb.ID, *resourcepb.Resource) error
	// MayWrite returns an error if the caller must not write or delete a resource. For a write it is asked about the resource as it would be
	// stored, and about the stored one if there is one; for a deletion, and for a status, about the stored one, or an id alone
	// where nothing is stored. Nil: whom Caller.OperatorWrite lets.
	MayWrite func(Caller, *resourcepb.Resource) error
	// MayList returns an error if the caller must not list or watch the type in a tenancy, each unit of which may be "*". What MayRead
	// refuses is left out of a list in any case. Nil: whom Caller.OperatorRead lets.
	MayList func(Caller, *resourcepb.Type, *resourcepb.Tenancy) error
}

// Caller is who calls the service: what its Authenticate function made of a token. Hooks may assert it to a type that knows more.
type Caller interface {
	// OperatorRead returns an error if the caller must not read what has no rules of its own.
	OperatorRead() error
	// OperatorWrite returns an error if the caller must not write what has no rules of its own.
	OperatorWrite() error
}

var (
	// ErrNeedResource is MayRead's answer where the id does not suffice to decide.
	ErrNeedResource = errors.New("the resource is needed to decide")
	// ErrDenied is what the error of an authorization hook wraps if the caller is not allowed to do what was asked for. Any other
	// error says that the hook could not decide.
	ErrDenied = errors.New("permission denied")
)

// withDefaults returns the type with its authorization functions set.
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

// equal reports whether two types are the same, group version included.
func equal(a, b *resourcepb.Type) bool {
	return a.GetGroup() == b.GetGroup() && a.GetGroupVersion() == b.GetGroupVersion() && a.GetKind() == b.GetKind()
}
