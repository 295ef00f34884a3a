package web

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// documentPath is where the OpenAPI document is.
const documentPath = "/openapi.json"

// object is a JSON object of an OpenAPI document.
type object = map[string]any

// document is the OpenAPI document of a registry.
type document struct {
	// text returns it up to the URL of the server, and from there on. It is made when it is first asked for.
	text func() (head, tail []byte)
}

func newDocument(types *registry.Registry) document {
	return document{sync.OnceValues(func() (head, tail []byte) {
		text := describe(types)
		head, tail, _ = bytes.Cut(text, quote(serverPlaceholder))
		return head, tail
	})}
}

// serverPlaceholder stands for the URL of the server in the text of a document.
const serverPlaceholder = "where the handler is mounted"

// serve answers with the document.
func (d document) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed(w, r.Method, map[string]operation{http.MethodGet: {}})
	}
	head, tail := d.text()
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(bytes.Join([][]byte{head, tail}, quote(mountPath(r)))) // whoever asked may be gone
	return nil
}

// mountPath returns the path below which the handler is mounted: what was taken from the path of the request on its way here.
func mountPath(r *http.Request) string {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return "/"
	}
	if prefix, ok := strings.CutSuffix(asked.EscapedPath(), documentPath); ok && prefix != "" {
		return prefix
	}
	return "/"
}

// describe returns the text of the document.
func describe(types *registry.Registry) []byte {
	s := schemas{}
	s.common()
	paths := object{documentPath: object{"get": object{
		"operationId": "openapi", "summary": "This document",
		"responses": object{"200": answerOf("The document.", object{jsonType: object{"schema": object{"type": "object"}}})},
	}}}
	if types.Open() {
		maps.Copy(paths, s.paths(route{
			path: "/{group}/{version}/{kind}", tag: "resources", schema: s.ofOpen(),
			units: []string{"partition", "namespace"}, open: true,
		}))
	}
	for _, t := range types.Types() {
		maps.Copy(paths, s.paths(route{
			path: "/" + pathOf(t.Type), tag: registry.Name(t.Type), schema: s.ofType(t),
			units: unitsOf(t.Scope),
		}))
	}
	text, err := json.MarshalIndent(struct {
		OpenAPI    string   `json:"openapi"`
		Info       object   `json:"info"`
		Servers    []object `json:"servers"`
		Security   []object `json:"security"`
		Paths      object   `json:"paths"`
		Components object   `json:"components"`
	}{
		OpenAPI: "3.1.0",
		Info: object{
			"title": "Resource service", "version": "v1",
			"description": "Typed resources, with owners, statuses and watches. Field names are those of protojson.",
		},
		Servers:  []object{{"url": serverPlaceholder}},
		Security: []object{{}, {"bearer": []string{}}, {"token": []string{}}},
		Paths:    paths,
		Components: object{
			"schemas":    s,
			"parameters": parameters(),
			"responses":  object{"error": answerOf("An error.", object{jsonType: object{"schema": ref(errorSchema)}})},
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer"},
				"token":  object{"type": "apiKey", "in": "header", "name": "x-consul-token"},
			},
		},
	}, "", indent)
	if err != nil {
		panic("encoding maps and texts cannot fail: " + err.Error())
	}
	return append(text, '\n')
}

// unitsOf returns the units of a tenancy that resources of a scope live in.
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

// The names of schemas that are of no message. No message's name holds a '-'.
const (
	errorSchema  = "answer-error"
	opaqueSchema = "payload-opaque"
	anySchema    = "payload-any"
)

// common adds the schemas of what all types share.
func (s schemas) common() {
	s[errorSchema] = object{
		"type": "object", "required": []string{"error"},
		"properties": object{"error": object{
			"type": "object", "required": []string{"code", "status", "message"},
			"properties": object{
				"code":    object{"type": "integer", "description": "The HTTP status code."},
				"status":  object{"type": "string", "description": "The gRPC code, such as NOT_FOUND."},
				"reason":  object{"type": "string", "description": "A name of the error for programs, such as CAS_FAILURE."},
				"message": object{"type": "string"},
			},
		}},
	}
	s[opaqueSchema] = object{
		"type": "object", "required": []string{"@type", "@value"}, "additionalProperties": false,
		"description": "A payload that JSON cannot show, by its bytes.",
		"properties":  object{"@type": object{"type": "string"}, "@value": base64Schema},
	}
	s[anySchema] = wellKnown["google.protobuf.Any"]
	s.message((&resourcepb.ID{}).ProtoReflect().Descriptor())
	s.message((&resourcepb.Status{}).ProtoReflect().Descriptor())
}

// ofOpen adds the schemas of the resources of an open registry, and returns their name.
func (s schemas) ofOpen() string {
	s.resource("any", ref(anySchema))
	return "any"
}

// ofType adds the schemas of the resources of a type, and returns their name.
func (s schemas) ofType(t *registry.Type) string {
	name := registry.Name(t.Type)
	m := t.Proto.ProtoReflect().Descriptor()
	fields := s.message(m)
	if usesValueField(m) {
		fields = object{"type": "object", "required": []string{"value"}, "additionalProperties": false, "properties": object{"value": fields}}
	}
	s.resource(name, object{"anyOf": []object{fields, ref(opaqueSchema)}})
	return name
}

// resource adds the schemas of a resource, a list and an event of a type. No message's name holds a '-'.
func (s schemas) resource(name string, data object) {
	id := ref("ashlar.resource.v1.ID")
	s["resource-"+name] = object{
		"type": "object", "additionalProperties": false,
		"properties": object{
			"id":         id,
			"owner":      object{"$ref": id["$ref"], "description": "The resource that this one belongs to. It cannot be changed."},
			"version":    object{"type": "string", "description": "Changes with every write. In a body: the version that must be stored."},
			"generation": object{"type": "string", "description": "Changes when the content does. In a body it has no effect."},
			"metadata":   object{"type": "object", "additionalProperties": object{"type": "string"}},
			"status":     object{"type": "object", "additionalProperties": ref("ashlar.resource.v1.Status")},
			"data":       data,
		},
	}
	one := ref("resource-" + name)
	s["list-"+name] = object{
		"type": "object", "required": []string{"resources"}, "additionalProperties": false,
		"properties": object{
			"resources": object{"type": "array", "items": one},
			"continue":  object{"type": "string", "description": "Asks for the next page. It is not there on the last one."},
			"cursor":    object{"type": "string", "description": "A position by which a watch goes on from this listing."},
		},
	}
	changed := object{"type": "object", "required": []string{"resource"}, "additionalProperties": false, "properties": object{"resource": one}}
	kinds := []object{ref(errorSchema)}
	for _, kind := range []string{"upsert", "delete", "endOfSnapshot", "bookmark"} {
		kinds = append(kinds, object{"required": []string{kind}})
	}
	s["event-"+name] = object{
		"type": "object", "oneOf": kinds, "description": "A line of a watch.",
		"properties": object{
			"upsert":        changed,
			"delete":        changed,
			"endOfSnapshot": object{"type": "object", "additionalProperties": false},
			"bookmark":      object{"type": "object", "properties": object{"cursor": object{"type": "string"}}},
			"more":          object{"type": "boolean", "description": "The next event is of the same commit."},
			"before":        one,
			"cursor":        object{"type": "string", "description": "A position by which another watch goes on after this event."},
		},
	}
}
