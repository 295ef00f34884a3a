package manifest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlReader reads the documents of a YAML stream.
type yamlReader struct {
	dec   *yaml.Decoder
	nodes int // of the current document, with aliases expanded
}

func newYAMLReader(data []byte) *yamlReader {
	return &yamlReader{dec: yaml.NewDecoder(bytes.NewReader(data))}
}

// next returns the next document, or io.EOF. An empty document is a null node.
func (r *yamlReader) next() (*node, error) {
	var doc yaml.Node
	if err := r.dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, malformedError(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return &node{kind: null, line: doc.Line}, nil
	}
	r.nodes = 0
	return r.value(doc.Content[0], 0)
}

// linePrefix matches the position in the errors of the YAML library.
var linePrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// malformedError extracts the line from an error of the library. The library counts lines from 0 and omits line 0, except for errors
// inside a word, where it counts from 1. The other errors are errors of the grammar: their messages name what the parser expected.
func malformedError(err error) error {
	message := err.Error()
	found := linePrefix.FindStringSubmatch(message)
	line := 0
	if found != nil {
		message = message[len(found[0]):]
		line, _ = strconv.Atoi(found[1])
	}
	if line == 0 || strings.HasPrefix(message, "did not find expected") {
		line++
	}
	return errAt(line, "malformed YAML: %s", message)
}

func (r *yamlReader) value(y *yaml.Node, depth int) (*node, error) {
	if r.nodes++; r.nodes > maxNodes {
		return nil, errAt(y.Line, "more than %d values", maxNodes)
	}
	if depth > maxDepth {
		return nil, errAt(y.Line, "nested more than %d levels deep", maxDepth)
	}
	switch y.Kind {
	case yaml.AliasNode:
		return r.value(y.Alias, depth+1)
	case yaml.SequenceNode:
		n := &node{kind: list, line: y.Line, items: make([]*node, 0, len(y.Content))}
		for _, child := range y.Content {
			item, err := r.value(child, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		return n, nil
	case yaml.MappingNode:
		return r.object(y, depth)
	case yaml.ScalarNode:
		return scalar(y)
	}
	return nil, errAt(y.Line, "malformed YAML")
}

func (r *yamlReader) object(y *yaml.Node, depth int) (*node, error) {
	n := &node{kind: object, line: y.Line}
	seen := map[string]bool{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			return nil, errAt(k.Line, "a field name is not text")
		}
		if k.ShortTag() == "!!merge" {
			merged = append(merged, y.Content[i+1])
			continue
		}
		if seen[k.Value] {
			return nil, errAt(k.Line, "duplicate field %q", k.Value)
		}
		seen[k.Value] = true
		value, err := r.value(y.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		n.fields = append(n.fields, field{name: k.Value, line: k.Line, value: value})
	}
	for _, m := range merged {
		from, err := r.value(m, depth+1)
		if err != nil {
			return nil, err
		}
		sources := []*node{from}
		if from.kind == list {
			sources = from.items
		}
		for _, source := range sources {
			if source.kind != object {
				return nil, errAt(m.Line, "<< needs an object or a list of objects, found %v", source.kind)
			}
			for _, f := range source.fields {
				if !seen[f.name] {
					seen[f.name] = true
					n.fields = append(n.fields, f)
				}
			}
		}
	}
	return n, nil
}

// digits matches a whole number, even one so large that the library takes it for floating point.
var digits = regexp.MustCompile(`^[-+]?[0-9_]+$`)

func scalar(y *yaml.Node) (*node, error) {
	n := &node{kind: text, line: y.Line, text: y.Value}
	switch tag := y.ShortTag(); tag {
	case "!!str":
		// The library follows YAML 1.2 here, and Kubernetes YAML 1.1. They disagree on a bare y and n, so those stay text.
		if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0 {
			switch y.Value {
			case "yes", "Yes", "YES", "on", "On", "ON":
				n.kind, n.text = boolean, "true"
			case "no", "No", "NO", "off", "Off", "OFF":
				n.kind, n.text = boolean, "false"
			}
		}
	case "!!timestamp":
	case "!!null":
		n.kind, n.text = null, ""
	case "!!bool":
		var b bool
		if err := y.Decode(&b); err != nil {
			return nil, errAt(y.Line, "%q is not a boolean", y.Value)
		}
		n.kind, n.text = boolean, strconv.FormatBool(b)
	case "!!int":
		n.kind = number
		var signed int64
		var unsigned uint64
		switch {
		case y.Decode(&signed) == nil:
			n.text = strconv.FormatInt(signed, 10)
		case y.Decode(&unsigned) == nil:
			n.text = strconv.FormatUint(unsigned, 10)
		default:
			return nil, errAt(y.Line, "%q is not a whole number", y.Value)
		}
	case "!!float":
		n.kind = number
		if digits.MatchString(y.Value) {
			if i, ok := new(big.Int).SetString(strings.ReplaceAll(y.Value, "_", ""), 10); ok {
				n.text = i.String()
				return n, nil
			}
		}
		var f float64
		if err := y.Decode(&f); err != nil {
			return nil, errAt(y.Line, "%q is not a number", y.Value)
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, errAt(y.Line, "%s cannot be written in JSON; put it in quotes", y.Value)
		}
		n.text = strconv.FormatFloat(f, 'g', -1, 64)
	case "!!binary":
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(y.Value), ""))
		if err != nil {
			return nil, errAt(y.Line, "!!binary is not base64")
		}
		n.text = string(b)
	default:
		return nil, errAt(y.Line, "unknown YAML tag %s", tag)
	}
	return n, nil
}
