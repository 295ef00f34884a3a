package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlReader reads a YAML file node by node and collects its errors, with their lines.
type yamlReader struct {
	file string
	errs []error
}

// errorf records an error at a node; nil means the whole file.
func (r *yamlReader) errorf(n *yaml.Node, format string, args ...any) {
	text := fmt.Errorf(format, args...).Error()
	if n == nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %s", r.file, text))
		return
	}
	r.errs = append(r.errs, fmt.Errorf("%s: line %d: %s", r.file, n.Line, text))
}

// unknownKey records a key that is not expected.
func (r *yamlReader) unknownKey(key *yaml.Node, expected ...string) {
	r.errorf(key, "unknown key %q, expected %s", key.Value, strings.Join(expected, ", "))
}

// document returns the keys and values of the top-level object of the file.
func (r *yamlReader) document(text []byte) iter.Seq2[*yaml.Node, *yaml.Node] {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		r.errorf(nil, "it is empty")
	case err != nil:
		r.errorf(nil, "%s", strings.TrimPrefix(err.Error(), "yaml: ")) // the text contains the line
	case !errors.Is(decoder.Decode(&more), io.EOF):
		r.errorf(nil, "expected one YAML document")
	default:
		return r.object(doc.Content[0])
	}
	return func(func(*yaml.Node, *yaml.Node) bool) {}
}

// object returns the keys and values of an object. Duplicate keys, and keys that are not expected, are recorded as errors and skipped.
// Without expected keys, all are allowed.
func (r *yamlReader) object(n *yaml.Node, expected ...string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			r.errorf(n, "expected an object")
			return
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch {
			case seen[key.Value]:
				r.errorf(key, "duplicate key %q", key.Value)
				continue
			case len(expected) > 0 && !slices.Contains(expected, key.Value):
				r.unknownKey(key, expected...)
				continue
			}
			seen[key.Value] = true
			if !yield(key, value) {
				return
			}
		}
	}
}

// list returns the elements of a list.
func (r *yamlReader) list(n *yaml.Node) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		r.errorf(n, "expected a list")
		return nil
	}
	return n.Content
}

// text returns the text of a scalar that is not null.
func (r *yamlReader) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.errorf(n, "expected a text")
		return ""
	}
	return n.Value
}
