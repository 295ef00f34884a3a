package web

import (
	"maps"
	"net/http"
	"slices"
)

// route is a type in an OpenAPI document.
type route struct {
	path   string
	tag    string
	schema string // the name of its schemas, without what says of which
	units  []string
	open   bool
}

// ref refers to a schema of the document.
func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

func answerOf(description string, content object) object {
	return object{"description": description, "content": content}
}

// paths returns the paths of a type.
func (s schemas) paths(r route) object {
	list := answerOf("The resources; with watch, a line for each event.", object{
		jsonType:  object{"schema": ref("list-" + r.schema)},
		linesType: object{"schema": ref("event-" + r.schema)},
	})
	one := answerOf("The resource as it is stored.", object{jsonType: object{"schema": ref("resource-" + r.schema)}})
	owned := answerOf("The resources that it owns, of any type.", object{jsonType: object{"schema": ref("list-any")}})
	if _, there := s["list-any"]; !there {
		s.resource("any", object{"type": "object"})
	}
	gone := object{"description": "It is deleted, or will be when its last finalizer is removed; or it was not there."}
	body := func(schema string) object {
		return object{"required": true, "content": object{jsonType: object{"schema": ref(schema)}}}
	}
	named := r.path + "/{name}"
	return object{
		r.path: r.item(nil, object{
			"get": r.operation("list", "List or watch the resources of a type", listParameters, http.StatusOK, list),
		}),
		named: r.item([]string{"name"}, object{
			"get":    r.operation("read", "Read a resource", readParameters, http.StatusOK, one),
			"put":    withField(r.operation("write", "Create or update a resource", writeParameters, http.StatusOK, one), "requestBody", body("resource-"+r.schema)),
			"delete": r.operation("delete", "Delete a resource", deleteParameters, http.StatusNoContent, gone),
		}),
		named + "/owned": r.item([]string{"name"}, object{
			"get": r.operation("owned", "List what a resource owns", ownedParameters, http.StatusOK, owned),
		}),
		named + "/status/{key}": r.item([]string{"name", "key"}, object{
			"put": withField(r.operation("writeStatus", "Write a status of a resource", statusParameters, http.StatusOK, one),
				"requestBody", body("ashlar.resource.v1.Status")),
		}),
	}
}

// item returns a path with its operations.
func (r route) item(segments []string, operations object) object {
	if r.open {
		segments = append([]string{"group", "version", "kind"}, segments...)
	}
	if len(segments) > 0 {
		operations["parameters"] = references("path-", segments)
	}
	return operations
}

// operation returns an operation with its parameters, but for the units of a tenancy that the type does not live in.
func (r route) operation(name, summary string, known []string, code int, success object) object {
	known = slices.DeleteFunc(slices.Clone(known), func(p string) bool {
		unit := p
		if p == "ns" {
			unit = "namespace"
		}
		return slices.Contains(tenancyParameters, p) && !slices.Contains(r.units, unit)
	})
	answers := object{"default": object{"$ref": "#/components/responses/error"}}
	answers[map[int]string{http.StatusOK: "200", http.StatusNoContent: "204"}[code]] = success
	return object{
		"operationId": r.tag + "." + name, "tags": []string{r.tag},
		"summary": summary, "parameters": references("query-", known), "responses": answers,
	}
}

func withField(o object, field string, value any) object {
	o[field] = value
	return o
}

func references(kind string, names []string) []object {
	refs := make([]object, len(names))
	for i, name := range names {
		refs[i] = object{"$ref": "#/components/parameters/" + kind + name}
	}
	return refs
}

// parameters returns all parameters of the document.
func parameters() object {
	text := object{"type": "string"}
	value := object{"type": "string", "minLength": 1}
	flag := object{"type": "string", "enum": []string{"", "true", "1"}}
	count := object{"type": "integer", "minimum": 1}
	all := object{}
	for name, p := range map[string]struct {
		schema      object
		description string
	}{
		"partition":         {text, `The partition, "default" without it; "*" in lists is all of them.`},
		"namespace":         {text, `The namespace, "default" without it; "*" in lists is all of them.`},
		"ns":                {text, "The same as namespace."},
		"name_prefix":       {text, "Only resources whose names begin with it."},
		"uid":               {value, "Only the resource with this uid, not an earlier or later one of the same name."},
		"version":           {value, "Only if this version is stored."},
		"consistent":        {flag, "The answer shows every write that was acknowledged before."},
		"RequireConsistent": {flag, "The same as consistent."},
		"limit":             {count, "The largest number of resources in the answer."},
		"continue":          {text, "What the answer before said: asks for the next page. Needs limit in a listing of a type."},
		"watch":             {flag, "Watch: one event on a line."},
		"cursor":            {text, "With watch: go on from this position, without a snapshot."},
		"before":            {flag, "With watch: changes have the resource as it was before."},
		"bookmark":          {withField(maps.Clone(count), "maximum", maxInterval), "With watch: the number of seconds between bookmarks."},
	} {
		all["query-"+name] = object{"name": name, "in": "query", "schema": p.schema, "description": p.description}
		if slices.Contains(flags, name) {
			all["query-"+name].(object)["allowEmptyValue"] = true
		}
	}
	for name, description := range map[string]string{
		"name": "The name of the resource.", "key": "The key of the status.",
		"group": "The group of the type.", "version": "The group version of the type.", "kind": "The kind of the type, in camel case.",
	} {
		all["path-"+name] = object{"name": name, "in": "path", "required": true, "schema": text, "description": description}
	}
	return all
}
