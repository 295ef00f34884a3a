package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ashlar-dev/storage"
)

// readPolicy reads a token file:
//
//	tokens:
//	  - name: deployer                # for logs and error texts
//	    sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
//	    expires: 2027-01-31T00:00:00Z # optional
//	    hashes:                       # further tokens, which are valid at the same time
//	      - {sha256: 486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7, expires: 2027-03-31T00:00:00Z}
//	    certificates: [cn:deployer]   # or of a client certificate; also dns:, uri: and email:
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
			p.anonymous = &principal{name: anonymousName, anonymous: true}
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
	own := tokenHash{line: n.Line}
	for key, value := range r.object(n, "name", "sha256", "expires", "hashes", "certificates", "rules") {
		switch key.Value {
		case "name":
			h.name = r.text(value)
		case "sha256":
			own.sum = r.sum(value)
		case "expires":
			own.expires = r.time(value)
		case "hashes":
			for _, each := range r.list(value) {
				h.hashes = append(h.hashes, r.hash(each))
			}
		case "certificates":
			for _, each := range r.list(value) {
				h.certificates = append(h.certificates, r.certificate(each))
			}
		case "rules":
			h.rules = r.rules(value)
		}
	}
	if h.name == "" {
		r.errorf(n, "name is missing: it identifies the token in logs")
	}
	switch {
	case own.sum != [32]byte{}:
		h.hashes = append(h.hashes, own)
	case !own.expires.IsZero():
		r.errorf(n, "expires needs sha256")
	case len(h.hashes)+len(h.certificates) == 0:
		r.errorf(n, "sha256 is missing: the SHA-256 of the token, in hexadecimal digits")
	}
	return h
}

// hash reads one entry of hashes.
func (r *yamlReader) hash(n *yaml.Node) tokenHash {
	h := tokenHash{line: n.Line}
	for key, value := range r.object(n, "sha256", "expires") {
		switch key.Value {
		case "sha256":
			h.sum = r.sum(value)
		case "expires":
			h.expires = r.time(value)
		}
	}
	if h.sum == [32]byte{} {
		r.errorf(n, "sha256 is missing: the SHA-256 of the token, in hexadecimal digits")
	}
	return h
}

// sum reads the SHA-256 of a token.
func (r *yamlReader) sum(n *yaml.Node) (sum [sha256.Size]byte) {
	hash, err := hex.DecodeString(r.text(n))
	if err != nil || len(hash) != len(sum) {
		r.errorf(n, "sha256 must be the SHA-256 of the token, %d hexadecimal digits", 2*len(sum))
	}
	copy(sum[:], hash)
	if sum == sha256.Sum256(nil) {
		r.errorf(n, "this is the SHA-256 of an empty token")
	}
	return sum
}

// time reads the expiry of a token.
func (r *yamlReader) time(n *yaml.Node) time.Time {
	at, err := time.Parse(time.RFC3339, r.text(n))
	if err != nil {
		r.errorf(n, "expires must be a time such as 2027-01-31T00:00:00Z, found %q", n.Value)
	}
	return at
}

// certificate reads the identity of a client certificate.
func (r *yamlReader) certificate(n *yaml.Node) string {
	text := r.text(n)
	if kind, name, _ := strings.Cut(text, ":"); name == "" || !slices.Contains([]string{"cn", "dns", "uri", "email"}, kind) {
		r.errorf(n, "a certificate must be cn:NAME, dns:NAME, uri:URI or email:ADDRESS, found %q", text)
	}
	return text
}

// distinct rejects duplicate names, tokens and certificates.
func (r *yamlReader) distinct(list *yaml.Node, holders []*principal) {
	names, hashes, certificates := map[string]int{}, map[[32]byte]int{}, map[string]int{}
	for i, h := range holders {
		n := list.Content[i]
		if before, ok := names[h.name]; ok && h.name != "" {
			r.errorf(n, "duplicate name %q, first in line %d", h.name, before)
		}
		names[h.name] = n.Line
		for _, hash := range h.hashes {
			if before, ok := hashes[hash.sum]; ok && hash.sum != [32]byte{} {
				r.errorf(&yaml.Node{Line: hash.line}, "duplicate token, first in line %d", before)
			}
			hashes[hash.sum] = hash.line
		}
		for _, c := range h.certificates {
			if before, ok := certificates[c]; ok {
				r.errorf(n, "duplicate certificate %q, first in line %d", c, before)
			}
			certificates[c] = n.Line
		}
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
	t, err := parseTypePattern(r.text(n))
	if err != nil {
		r.errorf(n, "%w", err)
	}
	return t
}

// parseTypePattern parses group/Kind, group/* or *.
func parseTypePattern(text string) (storage.UnversionedType, error) {
	if text == storage.Wildcard {
		return storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}, nil
	}
	group, kind, ok := strings.Cut(text, "/")
	if !ok || group == "" || kind == "" || strings.Contains(group, storage.Wildcard) || strings.Contains(kind, "/") ||
		kind != storage.Wildcard && strings.Contains(kind, storage.Wildcard) {
		return storage.UnversionedType{}, fmt.Errorf("a type must be group/Kind, group/* or *, found %q", text)
	}
	return storage.UnversionedType{Group: group, Kind: kind}, nil
}

// pattern reads a name, or a prefix followed by "*".
func (r *yamlReader) pattern(n *yaml.Node) string {
	text := r.text(n)
	if strings.Contains(strings.TrimSuffix(text, storage.Wildcard), storage.Wildcard) {
		r.errorf(n, "only one * is allowed, at the end, found %q", text)
	}
	return text
}
