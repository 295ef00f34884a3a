package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// policy is the content of a token file.
type policy struct {
	principals []*principal
	anonymous  *principal // callers without a token; nil if they are rejected
}

// find returns the owner of a token that has not expired. It takes as long for an unknown token as for a known one.
func (p *policy) find(token string, now time.Time) (*principal, error) {
	var found *principal
	var expires time.Time
	sum := sha256.Sum256([]byte(token))
	for _, h := range p.principals {
		for _, hash := range h.hashes {
			if subtle.ConstantTimeCompare(sum[:], hash.sum[:]) == 1 {
				found, expires = h, hash.expires
			}
		}
	}
	switch {
	case found == nil:
		return nil, fmt.Errorf("%w: unknown token", service.ErrUnauthenticated)
	case !expires.IsZero() && !now.Before(expires):
		return nil, fmt.Errorf("%w: the token has expired", service.ErrUnauthenticated)
	}
	return found, nil
}

// findCertificate returns the principal with a client certificate, or nil.
func (p *policy) findCertificate(c *x509.Certificate) *principal {
	identities := []string{"cn:" + c.Subject.CommonName}
	for _, name := range c.DNSNames {
		identities = append(identities, "dns:"+name)
	}
	for _, uri := range c.URIs {
		identities = append(identities, "uri:"+uri.String())
	}
	for _, address := range c.EmailAddresses {
		identities = append(identities, "email:"+address)
	}
	for _, h := range p.principals {
		if slices.ContainsFunc(h.certificates, func(each string) bool { return slices.Contains(identities, each) }) {
			return h
		}
	}
	return nil
}

// checkTypes rejects rules about types that are not served.
func (p *policy) checkTypes(types *registry.Registry) error {
	if types.Open() {
		return nil
	}
	served := append(types.Types(), &registry.Type{Type: service.TombstoneType})
	var errs []error
	for _, h := range append(slices.Clone(p.principals), p.anonymous) {
		for _, pattern := range h.patterns() {
			if !slices.ContainsFunc(served, func(t *registry.Type) bool { return matchesPattern(pattern, t.Type) }) {
				errs = append(errs, fmt.Errorf("a rule of %q is for %s/%s, but no such type is served", h.name, pattern.Group, pattern.Kind))
			}
		}
	}
	return errors.Join(errs...)
}

// anonymousName is the name of callers without a token.
const anonymousName = "anonymous"

// principal is the owner of tokens and certificates.
type principal struct {
	name         string
	anonymous    bool // it stands for callers without a token
	hashes       []tokenHash
	certificates []string
	rules        []rule
}

// tokenHash is the SHA-256 of a token.
type tokenHash struct {
	sum     [sha256.Size]byte
	expires time.Time // zero for never
	line    int
}

// patterns returns the types in the rules.
func (h *principal) patterns() (all []storage.UnversionedType) {
	if h == nil {
		return nil
	}
	for _, r := range h.rules {
		all = append(all, r.types...)
	}
	return all
}

// OperatorRead returns nil if the principal may read and list everything.
func (h *principal) OperatorRead() error {
	if err := h.may("read", anyType, anyTenancy); err != nil {
		return err
	}
	return h.may("list", anyType, anyTenancy)
}

// OperatorWrite returns nil if the principal may write everything.
func (h *principal) OperatorWrite() error { return h.may("write", anyType, anyTenancy) }

// may returns nil if one of the rules allows an action, "read", "list" or "write".
func (h *principal) may(action string, t *resourcepb.Type, in *resourcepb.Tenancy) error {
	for i := range h.rules {
		r := &h.rules[i]
		if r.allows(action) && r.matchesType(t) && matches(r.partition, in.GetPartition()) && matches(r.namespace, in.GetNamespace()) {
			return nil
		}
	}
	return fmt.Errorf("%w: %q may not %s %s/%s in partition %q, namespace %q", registry.ErrDenied, h.name, action,
		t.GetGroup(), t.GetKind(), in.GetPartition(), in.GetNamespace())
}

// rule allows some actions on the resources of some types in some tenancies.
type rule struct {
	types                []storage.UnversionedType // "*" matches any
	partition, namespace string                    // each a name, or a prefix followed by "*"
	read, list, write    bool
}

func (r *rule) allows(action string) bool {
	return action == "read" && r.read || action == "list" && r.list || action == "write" && r.write
}

func (r *rule) matchesType(t *resourcepb.Type) bool {
	return slices.ContainsFunc(r.types, func(u storage.UnversionedType) bool { return matchesPattern(u, t) })
}

// matchesPattern reports whether a type matches a pattern of parseTypePattern.
func matchesPattern(u storage.UnversionedType, t *resourcepb.Type) bool {
	return (u.Group == storage.Wildcard || u.Group == t.GetGroup()) && (u.Kind == storage.Wildcard || u.Kind == t.GetKind())
}

// matches reports whether a pattern allows a partition or namespace. A list over all of them passes "*", which only the pattern "*" allows.
func matches(pattern, unit string) bool {
	prefix, open := strings.CutSuffix(pattern, storage.Wildcard)
	if !open {
		return unit == pattern
	}
	return strings.HasPrefix(unit, prefix) // a prefix contains no "*"
}

var (
	anyType    = &resourcepb.Type{Group: storage.Wildcard, Kind: storage.Wildcard}
	anyTenancy = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

// expiry returns the time at which a token expires, zero for never.
func (p *policy) expiry(token string) (at time.Time) {
	sum := sha256.Sum256([]byte(token))
	for _, h := range p.principals {
		for _, hash := range h.hashes {
			if hash.sum == sum {
				at = hash.expires
			}
		}
	}
	return at
}
