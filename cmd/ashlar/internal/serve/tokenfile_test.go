package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// save writes a file and returns its path.
func save(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loadTokens reads a token file.
func loadTokens(file string) (*tokens, error) {
	t := &tokens{file: file}
	return t, t.load()
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestInvalidTokenFiles(t *testing.T) {
	t.Parallel()
	hash := hashOf("a token")
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"empty":             {"", []string{"it is empty"}},
		"malformed":         {"tokens: [\n", []string{"line 1: did not find"}},
		"two documents":     {"tokens: []\n---\n", []string{"one YAML document"}},
		"no object":         {"- a", []string{"line 1: expected an object"}},
		"empty token":       {"tokens: [{name: a, sha256: " + hashOf("") + "}]", []string{"line 1: this is the SHA-256 of an empty token"}},
		"nobody":            {"tokens: []", []string{"it grants no access"}},
		"unknown keys":      {"tokes: []\nanonymous: {rule: []}", []string{`line 1: unknown key "tokes", expected tokens, anonymous`, `line 2: unknown key "rule", expected rules`}},
		"key twice":         {"anonymous: {rules: []}\nanonymous: {rules: []}", []string{`line 2: duplicate key "anonymous"`}},
		"no list":           {"tokens: a", []string{"line 1: expected a list"}},
		"nothing in it":     {"tokens:\n  - {}", []string{"line 2: name is missing", "line 2: sha256 is missing"}},
		"a plain token":     {"tokens:\n  - name: a\n    sha256: a token", []string{"line 3: sha256 must be the SHA-256 of the token, 64 hexadecimal digits"}},
		"name twice":        {"tokens:\n  - {name: a, sha256: " + hash + "}\n  - {name: a, sha256: " + hashOf("b") + "}", []string{`line 3: duplicate name "a", first in line 2`}},
		"token twice":       {"tokens:\n  - {name: a, sha256: " + hash + "}\n  - {name: b, sha256: " + hash + "}", []string{"line 3: duplicate token, first in line 2"}},
		"token in hashes":   {"tokens:\n  - name: a\n    hashes:\n      - {sha256: " + hash + "}\n      - {sha256: " + hash + "}", []string{"line 5: duplicate token, first in line 4"}},
		"bad expiry":        {"tokens:\n  - {name: a, sha256: " + hash + ", expires: tomorrow}", []string{`line 2: expires must be a time such as 2027-01-31T00:00:00Z, found "tomorrow"`}},
		"expiry of nothing": {"tokens:\n  - {name: a, certificates: [cn:a], expires: 2027-01-31T00:00:00Z}", []string{"line 2: expires needs sha256"}},
		"no hash":           {"tokens:\n  - {name: a, hashes: [{}]}", []string{"line 2: sha256 is missing"}},
		"certificates":      {"tokens:\n  - {name: a, certificates: [deployer, 'ip:1', 'cn:']}", []string{`found "deployer"`, `found "ip:1"`, `found "cn:"`}},
		"certificate twice": {"tokens:\n  - {name: a, certificates: [cn:x]}\n  - {name: b, certificates: [cn:x]}", []string{`line 3: duplicate certificate "cn:x", first in line 2`}},
		"an empty rule":     {"anonymous:\n  rules:\n    - {}", []string{"line 3: types is missing", "line 3: may is missing"}},
		"actions":           {"anonymous:\n  rules:\n    - {types: ['*'], may: [red]}", []string{`line 3: may must be a list of read, list and write, found "red"`}},
		"a null":            {"anonymous:\n  rules:\n    - {types: ['*'], may: [read], namespace: }", []string{"line 3: expected a text"}},
		"stars":             {"anonymous:\n  rules:\n    - {types: ['*'], may: [read], namespace: 'a*b*'}", []string{"only one * is allowed, at the end"}},
		"types":             {"anonymous:\n  rules:\n    - {types: [a, 'a/', '*/b', a/b/c, a/b*, /b], may: [read]}", []string{`found "a"`, `found "a/"`, `found "*/b"`, `found "a/b/c"`, `found "a/b*"`, `found "/b"`}},
		"several faults":    {"tokens:\n  - name: a\nanonymous:\n  rules: 1", []string{"line 2: sha256 is missing", "line 4: expected a list"}},
	} {
		path := save(t, "tokens.yaml", tc.text)
		_, err := readPolicy(path)
		if err == nil {
			t.Errorf("%s: it is accepted", name)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path+": ") {
				t.Errorf("%s: %q does not contain %q", name, err, want)
			}
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	tokens, err := loadTokens(save(t, "tokens.yaml", `
tokens:
  - name: a
    sha256: `+hashOf("token a")+`
    rules:
      - {types: [apps/*, core/Pod], partition: default, namespace: shop-*, may: [read, list]}
      - {types: [core/Pod], namespace: bank, may: [write]}
  - name: all
    sha256: `+hashOf("token all")+`
    rules:
      - {types: ["*"], may: [read, list]}
  - name: nothing
    sha256: `+hashOf("token nothing")+`
anonymous:
  rules:
    - {types: [core/*], partition: "", namespace: "", may: [list]}
`))
	if err != nil {
		t.Fatal(err)
	}
	hooks := withRules(registry.Type{})
	for _, tc := range []struct {
		token, action, typ, partition, namespace string
		want                                     bool
	}{
		{"token a", "read", "apps/Deployment", "default", "shop-1", true},
		{"token a", "list", "apps/Deployment", "default", "shop-1", true},
		{"token a", "write", "apps/Deployment", "default", "shop-1", false},
		{"token a", "read", "apps/Deployment", "default", "shop", false},
		{"token a", "read", "apps/Deployment", "other", "shop-1", false},
		{"token a", "read", "apps/Deployment", "", "", false},
		{"token a", "read", "core/Pod", "default", "shop-1", true},
		{"token a", "read", "core/Secret", "default", "shop-1", false},
		{"token a", "read", "app/Deployment", "default", "shop-1", false},
		{"token a", "list", "apps/*", "default", "shop-1", true},
		{"token a", "list", "core/*", "default", "shop-1", false},
		{"token a", "list", "*/*", "default", "shop-1", false},
		{"token a", "list", "apps/Deployment", "default", "*", false},
		{"token a", "list", "apps/Deployment", "*", "shop-1", false},
		{"token a", "write", "core/Pod", "any", "bank", true},
		{"token a", "write", "core/Pod", "any", "banks", false},
		{"token all", "read", "any/Thing", "", "", true},
		{"token all", "list", "*/*", "*", "*", true},
		{"token all", "write", "any/Thing", "", "", false},
		{"token nothing", "read", "any/Thing", "", "", false},
		{"", "list", "core/Node", "", "", true},
		{"", "list", "core/Node", "default", "", false},
		{"", "read", "core/Node", "", "", false},
	} {
		tenancy := &resourcepb.Tenancy{Partition: tc.partition, Namespace: tc.namespace}
		c, err := tokens.authenticate(t.Context(), tc.token, tenancy)
		if err != nil {
			t.Fatal(err)
		}
		group, kind, _ := strings.Cut(tc.typ, "/")
		id := &resourcepb.ID{Type: &resourcepb.Type{Group: group, GroupVersion: "v1", Kind: kind}, Tenancy: tenancy}
		switch tc.action {
		case "read":
			err = hooks.MayRead(c, id, nil)
		case "list":
			err = hooks.MayList(c, id.GetType(), tenancy)
		case "write":
			err = hooks.MayWrite(c, &resourcepb.Resource{Id: id})
		}
		if (err == nil) != tc.want || err != nil && !errors.Is(err, registry.ErrDenied) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	for token, operator := range map[string]bool{"token all": true, "token a": false, "": false} {
		c, err := tokens.authenticate(t.Context(), token, nil)
		if err != nil || (c.OperatorRead() == nil) != operator || c.OperatorWrite() == nil {
			t.Errorf("%q: %v, %v, %v", token, err, c.OperatorRead(), c.OperatorWrite())
		}
	}
	for _, token := range []string{"token", "token a ", hashOf("token a"), "TOKEN A"} {
		if _, err := tokens.authenticate(t.Context(), token, nil); !errors.Is(err, service.ErrUnauthenticated) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// Several tokens of one name are valid at once, each until it expires.
func TestTokenExpiry(t *testing.T) {
	t.Parallel()
	tokens, err := loadTokens(save(t, "tokens.yaml", `
tokens:
  - name: a
    sha256: `+hashOf("current")+`
    expires: 2999-01-31T00:00:00Z
    hashes:
      - {sha256: `+hashOf("next")+`}
      - {sha256: `+hashOf("old")+`, expires: 2020-01-31T00:00:00Z}
anonymous:
  rules: [{types: ["*"], may: [read]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"current", "next"} {
		if c, err := tokens.authenticate(t.Context(), token, nil); err != nil || c.(*principal).name != "a" {
			t.Errorf("%s: %v, %v", token, c, err)
		}
	}
	if c, err := tokens.authenticate(t.Context(), "old", nil); !errors.Is(err, service.ErrUnauthenticated) || !strings.Contains(err.Error(), "the token has expired") {
		t.Errorf("old: %v, %v", c, err)
	}
}

// Rules must be about types that are served.
func TestRulesOfUnknownTypes(t *testing.T) {
	t.Parallel()
	p, err := readPolicy(save(t, "tokens.yaml", `
tokens:
  - {name: a, sha256: `+hashOf("a")+`, rules: [{types: [demo/Album, demo/*, "*", internal/Tombstone, demo/Albun], may: [read]}]}
anonymous:
  rules: [{types: [music/*], may: [read]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	types, err := registry.New(registry.Type{
		Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Proto: &resourcepb.ID{}, Scope: registry.ScopeNamespace,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `a rule of "a" is for demo/Albun, but no such type is served` + "\n" + `a rule of "anonymous" is for music/*, but no such type is served`
	if err := p.checkTypes(types); err == nil || err.Error() != want {
		t.Errorf("got %v, expected %s", err, want)
	}
	if err := p.checkTypes(registry.NewOpen(registry.Type{})); err != nil {
		t.Error(err)
	}
}
