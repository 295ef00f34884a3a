package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// readPolicy reads a token file:
//
//	tokens:
//	  - name: deployer                # for logs and error texts
//	    sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
//	    rules:
//	      - types: [apps/*, core/ConfigMap]
//	        partition: default        # or *, the default, or a prefix followed by *
//	        namespace: shop-*
//	        may: [read, list, write]
//	anonymous:                        # callers without a token; without this entry they are rejected
//	  rules:
//	    - {types: ["*"], may: [read, list]}
//
// The file contains no tokens, only their hashes. All errors are reported at once, with their lines.
func readPolicy(file string) (*policy, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the token file: %w", err)
	}
	r := yamlReader{file: file}
	p := &policy{}
	for key, value := range r.document(text) {
		switch key.Value {
		case "tokens":
			for _, n := range r.list(value) {
				p.principals = append(p.principals, r.principal(n))
			}
			r.distinct(value, p.principals)
		case "anonymous":
			p.anonymous = &principal{name: "anonymous"}
			for key, value := range r.object(value, "rules") {
				if key.Value == "rules" {
					p.anonymous.rules = r.rules(value)
				}
			}
		default:
			r.unknownKey(key, "tokens", "anonymous")
		}
	}
	if len(r.errs) == 0 && len(p.principals) == 0 && p.anonymous == nil {
		r.errorf(nil, "it grants no access: expected tokens, anonymous or both")
	}
	return p, errors.Join(r.errs...)
}

// principal reads one entry of tokens.
func (r *yamlReader) principal(n *yaml.Node) *principal {
	h := &principal{}
	hashed := false
	for key, value := range r.object(n, "name", "sha256", "rules") {
		switch key.Value {
		case "name":
			h.name = r.text(value)
		case "sha256":
			hash, err := hex.DecodeString(r.text(value))
			if err != nil || len(hash) != len(h.hash) {
				r.errorf(value, "sha256 must be the SHA-256 of the token, %d hexadecimal digits", 2*len(h.hash))
			}
			copy(h.hash[:], hash)
			if h.hash == sha256.Sum256(nil) {
				r.errorf(value, "this is the SHA-256 of an empty token")
			}
			hashed = true
		case "rules":
			h.rules = r.rules(value)
		}
	}
	if h.name == "" {
		r.errorf(n, "name is missing: it identifies the token in logs")
	}
	if !hashed {
		r.errorf(n, "sha256 is missing: the SHA-256 of the token, in hexadecimal digits")
	}
	return h
}

// distinct rejects duplicate names and tokens.
func (r *yamlReader) distinct(list *yaml.Node, holders []*principal) {
	names, hashes := map[string]int{}, map[[32]byte]int{}
	for i, h := range holders {
		line := list.Content[i].Line
		if before, ok := names[h.name]; ok && h.name != "" {
			r.errorf(list.Content[i], "duplicate name %q, first in line %d", h.name, before)
		}
		if before, ok := hashes[h.hash]; ok && h.hash != [32]byte{} {
			r.errorf(list.Content[i], "duplicate token, first in line %d", before)
		}
		names[h.name], hashes[h.hash] = line, line
	}
}

func (r *yamlReader) rules(list *yaml.Node) []rule {
	var rules []rule
	for _, n := range r.list(list) {
		rules = append(rules, r.rule(n))
	}
	return rules
}

func (r *yamlReader) rule(n *yaml.Node) rule {
	parsed := rule{partition: storage.Wildcard, namespace: storage.Wildcard}
	for key, value := range r.object(n, "types", "partition", "namespace", "may") {
		switch key.Value {
		case "types":
			for _, t := range r.list(value) {
				parsed.types = append(parsed.types, r.typ(t))
			}
		case "partition":
			parsed.partition = r.pattern(value)
		case "namespace":
			parsed.namespace = r.pattern(value)
		case "may":
			for _, action := range r.list(value) {
				switch r.text(action) {
				case "read":
					parsed.read = true
				case "list":
					parsed.list = true
				case "write":
					parsed.write = true
				default:
					r.errorf(action, "may must be a list of read, list and write, found %q", action.Value)
				}
			}
		}
	}
	if len(parsed.types) == 0 {
		r.errorf(n, "types is missing: a list of group/Kind, group/* or *")
	}
	if !parsed.read && !parsed.list && !parsed.write {
		r.errorf(n, "may is missing: a list of read, list and write")
	}
	return parsed
}

// typ reads group/Kind, group/* or *.
func (r *yamlReader) typ(n *yaml.Node) storage.UnversionedType {
	text := r.text(n)
	if text == storage.Wildcard {
		return storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	}
	group, kind, ok := strings.Cut(text, "/")
	if !ok || group == "" || kind == "" || strings.Contains(group, storage.Wildcard) || strings.Contains(kind, "/") ||
		kind != storage.Wildcard && strings.Contains(kind, storage.Wildcard) {
		r.errorf(n, "a type must be group/Kind, group/* or *, found %q", text)
	}
	return storage.UnversionedType{Group: group, Kind: kind}
}

// pattern reads a name, or a prefix followed by "*".
func (r *yamlReader) pattern(n *yaml.Node) string {
	text := r.text(n)
	if strings.Contains(strings.TrimSuffix(text, storage.Wildcard), storage.Wildcard) {
		r.errorf(n, "only one * is allowed, at the end, found %q", text)
	}
	return text
}

// policy is the content of a token file.
type policy struct {
	principals []*principal
	anonymous  *principal // callers without a token; nil if they are rejected
}

// find returns the owner of a token, or nil.
func (p *policy) find(token string) *principal {
	var found *principal
	hash := sha256.Sum256([]byte(token))
	for _, h := range p.principals {
		if subtle.ConstantTimeCompare(hash[:], h.hash[:]) == 1 {
			found = h
		}
	}
	return found
}

// principal is the owner of a token.
type principal struct {
	name  string
	hash  [sha256.Size]byte
	rules []rule
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
	for _, u := range r.types {
		if (u.Group == storage.Wildcard || u.Group == t.GetGroup()) && (u.Kind == storage.Wildcard || u.Kind == t.GetKind()) {
			return true
		}
	}
	return false
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
