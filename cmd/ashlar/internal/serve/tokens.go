package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// tokens knows who calls with which token, and what they may do. The token file can be read again at any time.
type tokens struct {
	file    string
	current atomic.Pointer[policy]
}

// newTokens reads a token file.
func newTokens(file string) (*tokens, error) {
	t := &tokens{file: file}
	return t, t.load()
}

// load reads the token file. If that fails, what was read before stays.
func (t *tokens) load() error {
	p, err := readPolicy(t.file)
	if err == nil {
		t.current.Store(p)
	}
	return err
}

// policy is what a token file says.
type policy struct {
	holders   []*holder
	anonymous *holder // who brings no token; nil if nobody may
}

// holder is who has a token.
type holder struct {
	name  string
	hash  [sha256.Size]byte
	rules []rule
}

// rule allows some actions on the resources of some types in some tenancies.
type rule struct {
	types                []storage.UnversionedType // a "*" is any
	partition, namespace string                    // each a text, or the beginning of one and "*"
	read, list, write    bool
}

// authenticate is the Authenticate function of the service. It takes as long for a token that is known as for one that is not.
func (t *tokens) authenticate(ctx context.Context, token string, _ *resourcepb.Tenancy) (registry.Caller, error) {
	p := t.current.Load()
	who := p.anonymous
	if token != "" {
		who = p.holder(token)
	}
	switch {
	case who != nil:
		note(ctx, who.name)
		return who, nil
	case token == "":
		return nil, fmt.Errorf("%w: a token is needed", service.ErrUnauthenticated)
	}
	return nil, fmt.Errorf("%w: the token is not known", service.ErrUnauthenticated)
}

// holder returns who has a token, nil if nobody has.
func (p *policy) holder(token string) *holder {
	var found *holder
	hash := sha256.Sum256([]byte(token))
	for _, h := range p.holders {
		if subtle.ConstantTimeCompare(hash[:], h.hash[:]) == 1 {
			found = h
		}
	}
	return found
}

// authorized returns a type with the hooks that ask the caller's rules.
func authorized(t registry.Type) registry.Type {
	t.MayRead = func(c registry.Caller, id *resourcepb.ID, _ *resourcepb.Resource) error {
		return c.(*holder).may("read", id.GetType(), id.GetTenancy())
	}
	t.MayWrite = func(c registry.Caller, res *resourcepb.Resource) error {
		return c.(*holder).may("write", res.GetId().GetType(), res.GetId().GetTenancy())
	}
	t.MayList = func(c registry.Caller, typ *resourcepb.Type, tenancy *resourcepb.Tenancy) error {
		return c.(*holder).may("list", typ, tenancy)
	}
	return t
}

// OperatorRead returns nil for those who may read and list everything.
func (h *holder) OperatorRead() error {
	if err := h.may("read", anyType, anyTenancy); err != nil {
		return err
	}
	return h.may("list", anyType, anyTenancy)
}

// OperatorWrite returns nil for those who may write everything.
func (h *holder) OperatorWrite() error { return h.may("write", anyType, anyTenancy) }

var (
	anyType    = &resourcepb.Type{Group: storage.Wildcard, Kind: storage.Wildcard}
	anyTenancy = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

// may returns nil if one of the rules allows an action, "read", "list" or "write".
func (h *holder) may(action string, t *resourcepb.Type, in *resourcepb.Tenancy) error {
	for i := range h.rules {
		r := &h.rules[i]
		if r.allows(action) && r.hasType(t) && matches(r.partition, in.GetPartition()) && matches(r.namespace, in.GetNamespace()) {
			return nil
		}
	}
	return fmt.Errorf("%w: %q may not %s %s/%s in partition %q, namespace %q", registry.ErrDenied, h.name, action,
		t.GetGroup(), t.GetKind(), in.GetPartition(), in.GetNamespace())
}

func (r *rule) allows(action string) bool {
	return action == "read" && r.read || action == "list" && r.list || action == "write" && r.write
}

func (r *rule) hasType(t *resourcepb.Type) bool {
	for _, u := range r.types {
		if (u.Group == storage.Wildcard || u.Group == t.GetGroup()) && (u.Kind == storage.Wildcard || u.Kind == t.GetKind()) {
			return true
		}
	}
	return false
}

// matches reports whether a unit of a tenancy is what a pattern allows. The unit "*" of a list over all of them needs the pattern "*".
func matches(pattern, unit string) bool {
	prefix, open := strings.CutSuffix(pattern, storage.Wildcard)
	if !open {
		return unit == pattern
	}
	return strings.HasPrefix(unit, prefix) // a prefix holds no "*"
}
