package web

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// documentPath is the path of the OpenAPI document.
const documentPath = "/openapi.json"

// document is the OpenAPI document of a registry.
type document struct {
	// text returns the document before and after the URL of the server. It is built on the first call.
	text func() (head, tail []byte)
}

func newDocument(types *registry.Registry) document {
	return document{sync.OnceValues(func() (head, tail []byte) {
		head, tail, _ = bytes.Cut(describe(types), quote(serverPlaceholder))
		return head, tail
	})}
}

// serverPlaceholder is in place of the URL of the server in openapi.json.
const serverPlaceholder = "MOUNT"

// serve writes the document.
func (d document) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed(w, r.Method, []string{http.MethodGet})
	}
	head, tail := d.text()
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(bytes.Join([][]byte{head, tail}, quote(mountPath(r)))) // the client may have disconnected
	return nil
}

// mountPath returns the path of the handler: the prefix that was stripped from the path of the request.
func mountPath(r *http.Request) string {
	requested, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return "/"
	}
	if prefix, ok := strings.CutSuffix(requested.EscapedPath(), documentPath); ok && prefix != "" {
		return prefix
	}
	return "/"
}

// skeleton has the parts of a document that do not depend on the types, and the schemas and paths of a type as templates.
//
//go:embed openapi.json
var skeleton []byte

// openAPI is an OpenAPI document. The order of its fields is the order in the text.
type openAPI struct {
	OpenAPI    string   `json:"openapi"`
	Info       object   `json:"info"`
	Servers    []object `json:"servers"`
	Security   []object `json:"security"`
	Paths      object   `json:"paths"`
	Components struct {
		Parameters      object  `json:"parameters"`
		Responses       object  `json:"responses"`
		Schemas         schemas `json:"schemas"`
		SecuritySchemes object  `json:"securitySchemes"`
	} `json:"components"`
}

// builder builds a document from the skeleton.
type builder struct {
	Document openAPI         `json:"document"`
	Schemas  json.RawMessage `json:"schemas"`
	Paths    json.RawMessage `json:"paths"`
}

// describe returns the text of the document.
func describe(types *registry.Registry) []byte {
	var b builder
	parse(skeleton, &b)
	s := b.Document.Components.Schemas
	s.message((&resourcepb.ID{}).ProtoReflect().Descriptor())
	s.message((&resourcepb.Status{}).ProtoReflect().Descriptor())
	all := []string{"partition", "namespace"}
	if types.Open() {
		b.addSchemas("any", ref("payload-any"))
		b.addPaths("/{group}/{version}/{kind}", "resources", "any", all, references("path-", []string{"group", "version", "kind"}))
		b.addPaths("/{group}/*/{kind}", "group", "any", all, references("stored-", []string{"group", "kind"}))
	} else {
		b.addSchemas("any", object{"type": "object"}) // of resources of several types
		b.addPaths("/{group}/*/{kind}", "group", "any", all, []any{groupParameter(types), reference("any-kind")})
	}
	b.addPaths("/*/*/*", "all", "any", all, nil)
	for path := range b.Document.Paths {
		if strings.Contains(path, "*") && strings.Contains(path, "{name}") {
			delete(b.Document.Paths, path) // only lists and watches accept wildcards
		}
	}
	for _, t := range types.Types() {
		name := registry.Name(t.Type)
		m := t.Proto.ProtoReflect().Descriptor()
		fields := s.message(m)
		if usesValueField(m) {
			fields = object{"type": "object", "required": []string{"value"}, "additionalProperties": false, "properties": object{"value": fields}}
		}
		b.addSchemas(name, object{"anyOf": []object{fields, ref("payload-opaque")}})
		b.addPaths("/"+pathOf(t.Type), name, name, unitsOf(t.Scope), nil)
	}
	text, err := json.MarshalIndent(b.Document, "", indent)
	if err != nil {
		panic("encoding maps and texts cannot fail: " + err.Error())
	}
	return append(text, '\n')
}

// groupParameter describes the group in the paths of several types.
func groupParameter(types *registry.Registry) object {
	groups := []string{}
	for _, t := range types.Types() { // in the order of their groups
		if g := t.Type.GetGroup(); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return object{"name": "group", "in": "path", "required": true, "schema": object{"type": "string", "enum": groups}, "description": "The group of the type."}
}

// addSchemas adds the schemas of a resource, a list and an event with a payload. A message name has no '-', so that the names do not collide.
func (b *builder) addSchemas(name string, data object) {
	added := schemas{}
	parse(bytes.ReplaceAll(b.Schemas, []byte("SCHEMA"), []byte(name)), &added)
	added["resource-"+name].(object)["properties"].(object)["data"] = orNull(data)
	maps.Copy(b.Document.Components.Schemas, added)
}

// addPaths adds the paths of a type with these units of tenancy. segments are the parameters in path.
func (b *builder) addPaths(path, tag, schema string, units []string, segments []any) {
	fill := strings.NewReplacer("PATH", path, "TAG", tag, "SCHEMA", schema)
	added := map[string]map[string]any{}
	parse([]byte(fill.Replace(string(b.Paths))), &added)
	for path, item := range added {
		if segments != nil {
			rest, _ := item["parameters"].([]any)
			item["parameters"] = slices.Concat(segments, rest)
		}
		for _, operation := range item {
			if op, ok := operation.(object); ok {
				_, name, _ := strings.Cut(strings.TrimPrefix(op["operationId"].(string), tag), ".")
				parameters := make([]any, 0)
				for _, p := range withoutUnits(operationParameters[name], units) {
					parameters = append(parameters, reference(parameterKind(name, p)+p))
				}
				op["parameters"] = parameters
			}
		}
		b.Document.Paths[path] = item
	}
}

// operationParameters are the query parameters of the operations in openapi.json.
var operationParameters = map[string][]string{
	"list": listParameters, "read": readParameters, "write": writeParameters, "delete": deleteParameters,
	"owned": ownedParameters, "writeStatus": statusParameters, "history": historyParameters,
}

// withoutUnits returns parameters without the units of a tenancy that are not in units.
func withoutUnits(parameters, units []string) []string {
	return slices.DeleteFunc(slices.Clone(parameters), func(p string) bool {
		unit := p
		if p == "ns" {
			unit = "namespace"
		}
		return slices.Contains(tenancyParameters, p) && !slices.Contains(units, unit)
	})
}

// unitsOf returns the units of a tenancy in a scope.
func unitsOf(scope registry.Scope) []string {
	switch scope {
	case registry.ScopeNamespace:
		return []string{"partition", "namespace"}
	case registry.ScopePartition:
		return []string{"partition"}
	case registry.ScopeCluster, registry.ScopeUndefined:
	}
	return nil
}

// parameterKind returns the prefix of the description of a query parameter of an operation: an operation on one resource accepts no wildcards, and a
// status needs the uid of its resource.
func parameterKind(operation, parameter string) string {
	switch {
	case operation == "writeStatus" && parameter == "uid":
		return "required-"
	case operation != "list" && operation != "history" && slices.Contains(tenancyParameters, parameter):
		return "unit-"
	}
	return "query-"
}

func references(kind string, names []string) []any {
	refs := make([]any, len(names))
	for i, name := range names {
		refs[i] = reference(kind + name)
	}
	return refs
}

func reference(name string) object { return object{"$ref": "#/components/parameters/" + name} }

// parse parses a part of openapi.json.
func parse(text []byte, v any) {
	if err := json.Unmarshal(text, v); err != nil {
		panic("openapi.json: " + err.Error())
	}
}
