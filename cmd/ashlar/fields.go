package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/jsonpb"
)

// fields prints a line for each field that differs between two versions of a resource: + for an added field, - for a removed one, ~ for a
// changed one. It prints nothing for a resource that was created or deleted.
func (p *printer) fields(before, now *history.Record) error {
	if before == nil || now == nil {
		return nil
	}
	was, err := flatFields(before)
	if err != nil {
		return err
	}
	is, err := flatFields(now)
	if err != nil {
		return err
	}
	wrote := false
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		old, had := was[path]
		value, has := is[path]
		line := ""
		switch {
		case !had:
			line = "  + " + path + ": " + value
		case !has:
			line = "  - " + path + ": " + old
		case old != value:
			line = "  ~ " + path + ": " + old + " -> " + value
		default:
			continue
		}
		wrote = true
		if err := p.line([]byte(line)); err != nil {
			return err
		}
	}
	if !wrote {
		return p.line([]byte("  written with the same content"))
	}
	return nil
}

// flatFields returns the fields of a resource by their paths, such as data.spec.replicas or data.spec.ports[0].name, with their values as
// JSON. It omits the fields that every write changes.
func flatFields(r *history.Record) (map[string]string, error) {
	text, err := jsonpb.Marshal(r.Resource)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("render a resource: %w", err)
	}
	out := map[string]string{}
	if top, ok := v.(map[string]any); ok {
		delete(top, "version")
		delete(top, "generation")
		delete(top, "author")
	}
	flatten(out, "", v)
	return out, nil
}

func flatten(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[path] = "{}"
		}
		for name, field := range v {
			flatten(out, joinPath(path, name), field)
		}
	case []any:
		if len(v) == 0 {
			out[path] = "[]"
		}
		for i, element := range v {
			flatten(out, path+"["+strconv.Itoa(i)+"]", element)
		}
	case string:
		out[path] = strconv.Quote(v)
	default:
		out[path] = fmt.Sprint(v)
	}
}

// joinPath appends a name to a path. It quotes names that would be ambiguous.
func joinPath(path, name string) string {
	for _, r := range name {
		if !(r == '_' || r == '-' || r == '@' || r == '/' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			name = strconv.Quote(name)
			break
		}
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// member is a field of an object that a printer writes.
type member struct {
	name  string
	value any // a text, a number or a *history.Record; nil and "" are omitted
}

// object prints an object as a line of JSON, or as YAML.
func (p *printer) object(members ...member) error {
	var text bytes.Buffer
	if err := writeObject(&text, members); err != nil {
		return err
	}
	if p.format == "yaml" {
		return p.yaml(text.Bytes())
	}
	return p.line(text.Bytes())
}

func writeObject(out *bytes.Buffer, members []member) error {
	between := "{"
	for _, m := range members {
		var value []byte
		switch v := m.value.(type) {
		case *history.Record:
			if v == nil {
				continue
			}
			resource, err := jsonpb.Marshal(v.Resource)
			if err != nil {
				return err
			}
			var record bytes.Buffer
			if err := writeObject(&record, []member{
				{"revision", v.Modified}, {"created", v.Created}, {"writes", v.Writes}, {"resource", json.RawMessage(resource)},
			}); err != nil {
				return err
			}
			value = record.Bytes()
		case json.RawMessage:
			value = v
		case string:
			if v == "" {
				continue
			}
			value = strconv.AppendQuote(nil, v)
		default:
			value = fmt.Append(nil, v)
		}
		if _, err := fmt.Fprintf(out, "%s%q:%s", between, m.name, value); err != nil {
			return err
		}
		between = ","
	}
	_, err := io.WriteString(out, "}")
	return err
}
