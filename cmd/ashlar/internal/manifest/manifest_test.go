package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
	"github.com/ashlar-dev/storage/internal/jsonpb"
)

var defaults = manifest.Defaults{Partition: "default", Namespace: "default"}

// read reads a text and returns each resource as JSON.
func read(t *testing.T, name, text string) []string {
	t.Helper()
	objects, err := manifest.Read(name, strings.NewReader(text), defaults)
	require.NoError(t, err)
	out := make([]string, 0, len(objects))
	for _, o := range objects {
		b, err := jsonpb.Marshal(o.Resource)
		require.NoError(t, err)
		out = append(out, string(b))
	}
	return out
}

func TestKubernetesFormat(t *testing.T) {
	t.Parallel()
	got := read(t, "a.yaml", `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: my.app_1
  namespace: shop
  labels: {app.kubernetes.io/name: my, empty: }
  annotations:
    note: |
      two
      lines
  creationTimestamp: null
  generation: 3
spec:
  replicas: 2
  paused: no
  mode: 0644
  date: 2024-05-06
  "y": y
  text: "yes"
  list: [1.5, null, {a: {}}, []]
status: {}
---
# nothing here
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
`)
	require.Len(t, got, 2)
	require.JSONEq(t, `{
		"id": {"name": "my.app_1", "type": {"group": "apps", "groupVersion": "v1", "kind": "Deployment"},
			"tenancy": {"partition": "default", "namespace": "shop"}},
		"metadata": {"label/app.kubernetes.io/name": "my", "label/empty": "", "annotation/note": "two\nlines\n"},
		"data": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {
			"metadata": {"creationTimestamp": null, "generation": 3},
			"spec": {"replicas": 2, "paused": false, "mode": 420, "date": "2024-05-06", "y": "y", "text": "yes",
				"list": [1.5, null, {"a": {}}, []]},
			"status": {}
		}}}`, got[0])
	require.JSONEq(t, `{
		"id": {"name": "shop", "type": {"group": "core", "groupVersion": "v1", "kind": "Namespace"},
			"tenancy": {"partition": "default", "namespace": "default"}},
		"data": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {}}}`, got[1])
}

func TestAnchorsAndMerges(t *testing.T) {
	t.Parallel()
	got := read(t, "a.yaml", `
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
base: &base {x: 1, y: 2}
data:
  <<: *base
  "y": 3
  copy: *base
`)
	require.Contains(t, got[0], `"data":{"copy":{"x":1,"y":2},"x":1,"y":3}`)
}

func TestOwners(t *testing.T) {
	t.Parallel()
	objects, err := manifest.Read("a.yaml", strings.NewReader(`
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: shop
  ownerReferences:
    - {apiVersion: v1, kind: Node, name: n, uid: 1c53a1e5-1a4a-4b6f-9a3e-111111111111}
    - {apiVersion: apps/v1, kind: ReplicaSet, name: r, controller: true}
---
{"id": {"name": "q", "type": {"group": "core", "kind": "Pod"}}, "owner": {"name": "r", "type": {"group": "apps", "kind": "ReplicaSet"}}}
`), defaults)
	require.NoError(t, err)
	require.Len(t, objects, 2)

	p := objects[0]
	require.Nil(t, p.Resource.Owner)
	require.Len(t, p.Owners, 2, "the namespace of the child, then the one of what belongs to none")
	require.Equal(t, "r", p.Owners[0].Name, "the controller is the owner")
	require.Equal(t, "shop", p.Owners[0].Tenancy.Namespace)
	require.Equal(t, "default", p.Owners[1].Tenancy.Namespace)
	payload := new(structpb.Struct)
	require.NoError(t, p.Resource.Data.UnmarshalTo(payload))
	refs := payload.Fields["metadata"].GetStructValue().Fields["ownerReferences"].GetListValue()
	require.Len(t, refs.GetValues(), 2, "several references stay in the payload")

	q := objects[1]
	require.Nil(t, q.Resource.Owner)
	require.Len(t, q.Owners, 1)
	require.Equal(t, "default", q.Owners[0].Tenancy.Partition)
}

func TestLists(t *testing.T) {
	t.Parallel()
	got := read(t, "a.json", `{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": [
		{"metadata": {"name": "a"}},
		{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}},
		{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}}]}
	]}
	{"apiVersion": "x.io/v1", "kind": "AccessList", "metadata": {"name": "d"}, "items": [1]}`)
	require.Len(t, got, 4)
	for i, want := range []string{`"kind":"ConfigMap"`, `"kind":"Secret"`, `"kind":"Pod"`, `"kind":"AccessList"`} {
		require.Contains(t, got[i], want)
	}
	require.Contains(t, got[3], `"items":[1]`, "a list with a name of its own is a resource")
}

// JSON that is not valid YAML is read as JSON, whatever the file name.
func TestJSONIsReadAsJSON(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.json", "a.yaml", "standard input"} {
		got := read(t, name, "\ufeff\n"+`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":"\/ \ud83d\ude00","on":true}`+"\n\n"+
			`{"apiVersion":"v1","kind":"A","metadata":{"name":"b"},"yes":"on"}`)
		require.Len(t, got, 2, name)
		require.Contains(t, got[0], `"x":"/ 😀"`, name)
		require.Contains(t, got[1], `"yes":"on"`, name)
	}
	got := read(t, "a.yaml", `{apiVersion: v1, kind: A, metadata: {name: flow}}`)
	require.Contains(t, got[0], `"name":"flow"`)
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]string{
		"0": "0", "-7": "-7", "1.50": "1.5", "1e3": "1000", "0x10": "16", "0o17": "15", "1_000": "1000", "9007199254740992": "9007199254740992",
		"-9007199254740992": "-9007199254740992", "9007199254740994": "9007199254740994", "1e16": "10000000000000000",
		"10000000000000000": "10000000000000000", "0.1": "0.1", "1.7976931348623157e308": "1.7976931348623157e+308",
	} {
		got := read(t, "a.yaml", "apiVersion: v1\nkind: A\nmetadata: {name: a}\nx: "+literal)
		require.Contains(t, got[0], `"x":`+want+`}`, literal)
	}
	for _, literal := range []string{
		"9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551615", "123456789012345678901234567890",
		"-123456789012345678901234567890", ".inf", "-.inf", ".nan",
	} {
		_, err := manifest.Read("a.yaml", strings.NewReader("apiVersion: v1\nkind: A\nmetadata: {name: a}\nx:\n- 1\n- "+literal), defaults)
		require.ErrorContains(t, err, "a.yaml: document 1, line 6: ", literal)
		require.ErrorContains(t, err, "in quotes", literal)
	}
	for _, doc := range []string{
		`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":9007199254740993}`,
		`{"id":{"name":"a","type":{"group":"g","kind":"k"}},"data":{"@type":"type.googleapis.com/google.protobuf.Struct","value":{"x":9007199254740993}}}`,
		`{"id":{"name":"a","type":{"group":"g","kind":"k"}},"data":{"@type":"type.googleapis.com/google.protobuf.Value","value":1e999}}`,
	} {
		_, err := manifest.Read("a.json", strings.NewReader(doc), defaults)
		require.ErrorContains(t, err, "a.json: document 1, line 1: the number", doc)
	}
	// A message with whole numbers stores them exactly.
	got := read(t, "a.json", `{"id":{"name":"a","type":{"group":"g","kind":"k"}},"data":{"@type":"type.googleapis.com/google.protobuf.Int64Value","value":"9007199254740993"}}`)
	require.Contains(t, got[0], `9007199254740993`)
}

func TestErrorPositions(t *testing.T) {
	t.Parallel()
	const good = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n"
	for text, want := range map[string]string{
		good + "a: b: c":                                       "f.yaml: document 2, line 5: malformed YAML",
		good + "a:\n\tb: c":                                    "f.yaml: document 2, line 6: malformed YAML",
		good + "a: [1,\nb: 2":                                  "f.yaml: document 2, line 5: malformed YAML",
		good + "a: 1\na: 2":                                    `f.yaml: document 2, line 6: duplicate field "a"`,
		good + "- 1":                                           "f.yaml: document 2, line 5: a document must be an object, found a list",
		good + "a: 1":                                          "f.yaml: document 2, line 5: neither an object",
		good + "kind: A":                                       "f.yaml: document 2, line 5: apiVersion is missing",
		good + "apiVersion: v1":                                "f.yaml: document 2, line 5: kind is missing",
		good + "apiVersion: 1\nkind: A":                        "f.yaml: document 2, line 5: apiVersion must be text, found a number",
		good + "apiVersion: a/b/c\nkind: A":                    "f.yaml: document 2, line 5: apiVersion must be GROUP/VERSION",
		good + "apiVersion: v1\nkind: A":                       "f.yaml: document 2, line 5: metadata is missing",
		good + "apiVersion: v1\nkind: A\nmetadata: []":         "f.yaml: document 2, line 7: metadata must be an object",
		good + "apiVersion: v1\nkind: A\nmetadata: {x: y}":     "f.yaml: document 2, line 7: metadata.name is missing",
		good + "apiVersion: v1\nkind: A\nmetadata: {name: 1}":  "f.yaml: document 2, line 7: metadata.name must be text",
		good + "apiVersion: v1\nkind: A\nmetadata: {name: ''}": "f.yaml: document 2, line 7: metadata.name is empty",
		good + "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  labels:\n    v: 1.0":                      `f.yaml: document 2, line 10: metadata.labels: "v" must be text`,
		good + "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  labels: x":                                "f.yaml: document 2, line 9: metadata.labels must be an object",
		good + "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  ownerReferences: x":                       "f.yaml: document 2, line 9: metadata.ownerReferences must be a list",
		good + "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  ownerReferences:\n  - {kind: B, name: b}": "f.yaml: document 2, line 10: apiVersion is missing",
		good + "id: {name: x}\nsurprise: 1":                                                                `f.yaml: document 2, line 5: unknown field "surprise"`,
		good + "id: {name: x}\ndata: {'@type': t, '@value': '!'}":                                          "f.yaml: document 2, line 5: data.@value is not base64",
		good + "a: !new x":        "f.yaml: document 2, line 5: unknown YAML tag !new",
		good + "? [a]\n: b":       "f.yaml: document 2, line 5: a field name is not text",
		good + "a: &a [*a]":       "f.yaml: document 2, line 5: nested more than 1000 levels deep",
		good + "a: *b":            "f.yaml: document 2, line",
		good + "<<: 1":            "f.yaml: document 2, line 5: << needs an object",
		good + "a: \"\xff\"":      "f.yaml: document 1, line 5: not valid UTF-8",
		"{\n\"a\": 1,\n\"a\": 2}": `f.yaml: document 1, line 3: duplicate field "a"`,
		strings.Repeat("[", 2000) + strings.Repeat("]", 2000): "f.yaml: document 1, line 1: nested more than 1000 levels deep",
	} {
		objects, err := manifest.Read("f.yaml", strings.NewReader(text), defaults)
		require.ErrorContains(t, err, want, text)
		require.Nil(t, objects)
		require.NotContains(t, err.Error(), "\n")
	}
	for text, want := range map[string]string{
		"{\"a\": 1,\n\"b\": }":    "f.json: document 1, line 2: malformed JSON",
		"{}\n{\"a\":":             "f.json: document 1, line 1: neither an object",
		"{\"kind\":\n\n[1, 2":     "f.json: document 1, line 3: malformed JSON: it ends inside a value",
		"{\"a\": 1,\n\n\"a\": 2}": `f.json: document 1, line 3: duplicate field "a"`,
		"apiVersion: v1\nkind: A": "f.json: document 1, line 1: malformed JSON",
	} {
		_, err := manifest.Read("f.json", strings.NewReader(text), defaults)
		require.ErrorContains(t, err, want, text)
	}
}

// The aliases of a small document must not fill the memory.
func TestAliasLimit(t *testing.T) {
	t.Parallel()
	text := "apiVersion: v1\nkind: A\nmetadata: {name: a}\nl0: &l0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		below := "*l" + string(rune('a'+i-2))
		if i == 1 {
			below = "*l0"
		}
		text += "l" + string(rune('a'+i-1)) + ": &l" + string(rune('a'+i-1)) + " [" + strings.Repeat(below+", ", 9) + below + "]\n"
	}
	_, err := manifest.Read("bomb.yaml", strings.NewReader(text), defaults)
	require.ErrorContains(t, err, "values")
}

func TestReadPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	doc := func(name string) []byte { return []byte("apiVersion: v1\nkind: A\nmetadata: {name: " + name + "}\n") }
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "b", "deep"), 0o700))
	for file, name := range map[string]string{"c.yml": "three", "a.yaml": "one", "b/deep/x.YAML": "two", "notes.txt": "five"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), doc(name), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d.json"), []byte(`{"apiVersion":"v1","kind":"A","metadata":{"name":"four"}}`), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(dir, "notes.txt"), filepath.Join(dir, "e.yaml")))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "circle.yaml")))

	objects, err := manifest.ReadPath(dir, defaults)
	require.NoError(t, err)
	names := make([]string, 0, len(objects))
	for _, o := range objects {
		names = append(names, o.Resource.Id.Name)
	}
	require.Equal(t, []string{"one", "two", "three", "four", "five"}, names)

	_, err = manifest.ReadPath(filepath.Join(dir, "nowhere"), defaults)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = manifest.ReadPath(t.TempDir(), defaults)
	require.ErrorContains(t, err, "no .yaml, .yml or .json file")
}
